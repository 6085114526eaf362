//! The points, in the order of their crates. A new one is a line here and a call before its step.
//! `tests/tidy` verifies that each point is passed somewhere.

macro_rules! points {
    ($($point:ident = $name:literal,)*) => {
        /// A step with a lasting effect: on a disk, in the kernel, in a VMM or in a guest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $(#[doc = concat!("The point `", $name, "`.")] $point,)*
        }

        impl Point {
            /// All points.
            pub const ALL: &[Point] = &[$(Point::$point,)*];

            /// The name by which tests order and record the point.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Point::$point => $name,)*
                }
            }
        }
    };
}

points! {
    // The daemon's own files.
    ServeSocketMake = "serve.socket.make",
    ServeSocketRemove = "serve.socket.remove",
    ServeLock = "serve.lock",
    // The store.
    StoreMake = "store.make",
    StoreUpgrade = "store.upgrade",
    StoreCommit = "store.commit",
    StoreQuarantine = "store.quarantine",
    // Records of another runtime's pods.
    UpstreamDirectory = "upstream.directory",
    UpstreamWrite = "upstream.write",
    UpstreamRename = "upstream.rename",
    // Images.
    ImageDirectories = "image.directories",
    ImageWork = "image.work",
    ImageBlobOpen = "image.blob.open",
    ImageBlobWrite = "image.blob.write",
    ImageLayer = "image.layer.make",
    ImageLayerTree = "image.layer.tree.make",
    ImageLayerRename = "image.layer.rename",
    ImageLayerRemove = "image.layer.remove",
    ImageMake = "image.make",
    ImageFileMake = "image.file.make",
    ImageSeal = "image.seal",
    ImageRename = "image.rename",
    ImageRemove = "image.remove",
    // Volumes.
    VolumeDiskMake = "volume.disk.make",
    VolumeDiskRename = "volume.disk.rename",
    // Networks.
    NetnsFolder = "netns.folder",
    NetnsMake = "netns.make",
    NetnsMount = "netns.mount",
    NetnsUnmount = "netns.unmount",
    NetnsRemove = "netns.remove",
    CniAdd = "cni.add",
    CniDel = "cni.del",
    CniCacheWrite = "cni.cache.write",
    CniCacheRename = "cni.cache.rename",
    CniCacheRemove = "cni.cache.remove",
    CniConfigWrite = "cni.config.write",
    TapMake = "tap.make",
    TapQuiet = "tap.quiet",
    TapJoin = "tap.join",
    // VMMs.
    VmmSocket = "vmm.socket",
    VmmSpawn = "vmm.spawn",
    VmmCgroup = "vmm.cgroup",
    VmmHello = "vmm.hello",
    VmmBoot = "vmm.boot",
    VmmRestore = "vmm.restore",
    VmmSave = "vmm.save",
    VmmPlug = "vmm.plug",
    VmmUnplug = "vmm.unplug",
    VmmResize = "vmm.resize",
    VmmMakeVcpus = "vmm.make_vcpus",
    VmmInterruptLockWaits = "vmm.interrupt_lock_waits",
    VmmShareGroups = "vmm.share_groups",
    VmmSlots = "vmm.slots",
    VmmStats = "vmm.stats",
    VmmConsole = "vmm.console",
    VmmShutdown = "vmm.shutdown",
    VmmKill = "vmm.kill",
    // Agents.
    AgentWake = "agent.wake",
    AgentConnect = "agent.connect",
    AgentHello = "agent.hello",
    AgentPreparePod = "agent.prepare_pod",
    AgentConfigurePod = "agent.configure_pod",
    AgentCreateContainer = "agent.create_container",
    AgentStartContainer = "agent.start_container",
    AgentUpdateContainer = "agent.update_container",
    AgentResizePod = "agent.resize_pod",
    AgentPublishVolume = "agent.publish_volume",
    AgentResizeVolume = "agent.resize_volume",
    AgentAttachHostSockets = "agent.attach_host_sockets",
    AgentRemoveContainer = "agent.remove_container",
    AgentExec = "agent.exec",
    AgentWait = "agent.wait",
    AgentSignal = "agent.signal",
    AgentStats = "agent.stats",
    AgentReclaim = "agent.reclaim",
    AgentUsage = "agent.usage",
    AgentShutdown = "agent.shutdown",
    AgentStream = "agent.stream",
    AgentInput = "agent.input",
    AgentAcknowledge = "agent.acknowledge",
    // Host paths in a pod's shared directory.
    ShareBind = "share.bind",
    ShareMount = "share.mount",
    ShareUnmount = "share.unmount",
    ShareRemove = "share.remove",
    // Connectors to sockets of the node.
    ConnectorSpawn = "connector.spawn",
    // Volumes kept by the guest itself.
    VolumeRead = "volume.read",
    // Logs and their acknowledgements.
    LogOpen = "log.open",
    LogWrite = "log.write",
    AckOpen = "ack.open",
    AckWrite = "ack.write",
    AckRemove = "ack.remove",
    // Pods' files, mounts and cgroups.
    PodDirectories = "pod.directories",
    PodBelonging = "pod.belonging",
    PodDirectoryMake = "pod.directory.make",
    PodRunDirRemove = "pod.run_dir.remove",
    PodStateDirRemove = "pod.state_dir.remove",
    SharedDirMake = "shared_dir.make",
    SharedDirMount = "shared_dir.mount",
    SharedDirUnmount = "shared_dir.unmount",
    TemplateDirectory = "template.directory",
    TemplateWrite = "template.write",
    TemplateRename = "template.rename",
    TemplateRemove = "template.remove",
    ScratchMake = "scratch.make",
    ScratchRemove = "scratch.remove",
    VmmLogMake = "vmm_log.make",
    VmmLogKeep = "vmm_log.keep",
    VmmLogPrune = "vmm_log.prune",
    ConsoleMake = "console.make",
    ConsoleKeep = "console.keep",
    CgroupMake = "cgroup.make",
    CgroupRemove = "cgroup.remove",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different_and_of_words_with_dots_between() {
        let names: BTreeSet<_> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        for name in names {
            assert!(name.contains('.'), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c)), "{name}");
        }
    }
}
