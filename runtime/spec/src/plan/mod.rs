//! A container resolved from its request and its image, for the agent.
//!
//! A [`ContainerPlan`] is created only here, and sent as it is: the OCI runtime specification, together with
//! everything the specification cannot express. Two things are filled in later: the slots, by the driver
//! plugging them, and volumes kept by the guest itself, by the driver inspecting the host.
//!
//! Network, IPC and host name are the VM's, so containers get no namespaces for them. The agent resolves the
//! user, because it can read the image's passwd file.

mod declared_volumes;
mod exec;
mod guest_paths;
mod guest_volumes;
mod host_sockets;
mod linux;
mod mounts;
mod process;
mod seccomp;
mod syscalls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::runtime::{LinuxSeccomp, RootBuilder, Spec, SpecBuilder};
use proto_seccomp::Filter;

pub use exec::ExecPlan;
pub use guest_paths::GuestPaths;
pub use guest_volumes::{
    DiskVolume, FileAccess, GuestVolumeContent, GuestVolumePlan, MemoryVolume, VolumeLimits,
};
pub use host_sockets::{HostSocketPlan, SOCKET_TOKEN_BYTES, SocketPlace, SocketToken};
pub use linux::{MASKED_PATHS, READONLY_PATHS};
pub use mounts::{DeclaredVolumePlan, ImageVolumePlan, share_name};
pub(crate) use process::limit_type;

use crate::container_path::normalized;
use crate::{ContainerSpec, ImageConfig, PodSpec, Signal, SpecError, parse_signal};

/// The agent's input for creating a container.
#[derive(Clone, Debug)]
pub struct ContainerPlan {
    /// Id of the container, 64 hex digits.
    pub container_id: String,
    /// OCI runtime specification. The agent fills in its root path and its user.
    pub oci: Spec,
    /// User as `user[:group]`, for the agent to look up in the image; empty for root.
    pub user: String,
    /// True if the groups from the image's group file are left out.
    pub strict_groups: bool,
    /// True if the container has a terminal.
    pub tty: bool,
    /// True if a client may open the container's input.
    pub stdin: bool,
    /// Container to share the PID namespace with.
    pub pid_target: Option<String>,
    /// True if every device node of the guest appears in the container.
    pub guest_devices: bool,
    /// True if a mount comes from the pod's shared directory.
    pub shared_mounts: bool,
    /// Images mounted by the container beside its own.
    pub image_volumes: Vec<ImageVolumePlan>,
    /// Volumes kept by the guest itself. None before [`ContainerPlan::keep_in_guest`].
    pub guest_volumes: Vec<GuestVolumePlan>,
    /// Sockets of the node. None before [`ContainerPlan::lead_to_sockets`].
    pub host_sockets: Vec<HostSocketPlan>,
    /// Volumes declared by the container's image.
    pub declared_volumes: Vec<DeclaredVolumePlan>,
    /// The container's block devices of the host.
    pub block_devices: Vec<BlockDevicePlan>,
    /// Limits: files of the container's cgroup (v2) and their values.
    pub cgroup_files: BTreeMap<String, String>,
    /// Filter of system calls. None before [`ContainerPlan::filter_by`].
    pub syscall_filter: Option<Arc<Filter>>,
    /// Most bytes of the writable layer. `None`, the initial value, for no limit but the scratch disk's.
    pub writable_layer_bytes: Option<u64>,
    /// Signal for stopping the container. The driver sends it, and the agent does not need it.
    pub stop_signal: Signal,
}

/// A container's block device of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevicePlan {
    /// Index of the device in the container's spec.
    pub device: usize,
    /// Path of its node in the container.
    pub path: String,
    /// Permissions, some of `rwm`.
    pub permissions: String,
    /// Owner of the node, by the container's numbering of users. `None`: the process's user.
    pub uid: Option<u32>,
    /// Group of the node, by the container's numbering of groups. `None`: the process's group.
    pub gid: Option<u32>,
    /// Mode of the node. 0660 unless requested otherwise.
    pub mode: u32,
}

/// Numbers of the VM's slots for a container: the image, then image volumes and block devices in the order of
/// the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSlots {
    /// Slot of the container's image.
    pub image: u8,
    /// One slot for each of [`ContainerPlan::image_volumes`].
    pub image_volumes: Vec<u8>,
    /// One slot for each of [`ContainerPlan::block_devices`].
    pub block_devices: Vec<u8>,
}

/// Mode of a disk's node, the same as the kernel's own.
const DISK_MODE: u32 = 0o660;

impl ContainerPlan {
    /// Resolves a container of `pod` from its image. `id` is the container's.
    ///
    /// # Errors
    /// A field of the spec is invalid or unsupported. The error names it.
    pub fn resolve(
        pod: &PodSpec,
        container: &ContainerSpec,
        image: &ImageConfig,
        id: &str,
        paths: &GuestPaths,
    ) -> Result<ContainerPlan, SpecError> {
        container.check(pod)?;
        let security = &container.security;
        let declared_volumes = declared_volumes::declared_volumes(container, image, paths)?;
        Ok(ContainerPlan {
            container_id: id.to_owned(),
            oci: oci(pod, container, image, &declared_volumes, id, paths)?,
            user: process::user(security, image),
            strict_groups: security.supplemental_groups_strict,
            tty: container.tty,
            stdin: container.stdin,
            pid_target: container.pid_target().map(str::to_owned),
            guest_devices: security.privileged,
            shared_mounts: container.host_mounts().next().is_some(),
            image_volumes: mounts::image_volumes(container, paths),
            guest_volumes: Vec::new(),
            host_sockets: Vec::new(),
            declared_volumes,
            block_devices: block_devices(container),
            cgroup_files: container.resources.cgroup_files()?,
            syscall_filter: None,
            writable_layer_bytes: None,
            stop_signal: stop_signal(container, image)?,
        })
    }
}

impl ContainerPlan {
    /// The rules of the container's filter of system calls.
    pub fn syscall_rules(&self) -> Option<&LinuxSeccomp> {
        self.oci.linux().as_ref().and_then(|linux| linux.seccomp().as_ref())
    }

    /// Sends this filter instead of its source rules. Agents before version 6 of the protocol only accept
    /// rules.
    pub fn filter_by(&mut self, filter: Arc<Filter>) {
        if let Some(linux) = self.oci.linux_mut() {
            linux.set_seccomp(None);
        }
        self.syscall_filter = Some(filter);
    }

    /// Lets the guest keep these volumes. They are mounts of the container, shared by the host in
    /// [`ContainerPlan::resolve`]. The guest itself then enforces read-only mounts.
    pub fn keep_in_guest(
        &mut self,
        container: &ContainerSpec,
        volumes: Vec<GuestVolumePlan>,
        paths: &GuestPaths,
    ) {
        for mut volume in volumes {
            let Some(asked) = container.mounts.get(volume.mount) else { continue };
            let shared = format!("{}/{}/{}", paths.shared, share_name(&self.container_id), volume.mount);
            volume.source = format!("{}/{}", paths.guest_volumes, volume.mount);
            volume.mapped = !asked.uid_mappings.is_empty();
            if let Some(mounts) = self.oci.mounts_mut() {
                let read_only = asked.readonly || asked.recursive_read_only;
                guest_volumes::redirect(mounts, &shared, &volume.source, read_only);
            }
            self.guest_volumes.push(volume);
        }
        self.shared_mounts = container.host_mounts().any(|(number, _)| !self.is_kept(number));
    }

    /// Makes the agent connect the container's programs to sockets of the node. Each socket has the number of
    /// its mount, its path in that mount (`None` if the mount is the socket), and its secret. The host then
    /// does not share a mount that is a socket.
    pub fn lead_to_sockets(
        &mut self,
        container: &ContainerSpec,
        sockets: impl IntoIterator<Item = (usize, Option<PathBuf>, SocketToken)>,
        paths: &GuestPaths,
    ) {
        for (number, sub_path, token) in sockets {
            let Some(asked) = container.mounts.get(number) else { continue };
            let directory = normalized(&asked.container_path);
            let place = match sub_path {
                Some(sub_path) => SocketPlace::Directory { directory, sub_path },
                None => {
                    let shared = format!("{}/{}/{number}", paths.shared, share_name(&self.container_id));
                    let source = host_sockets::source(number, paths.host_sockets);
                    if let Some(mounts) = self.oci.mounts_mut() {
                        guest_volumes::redirect(mounts, &shared, &source, asked.readonly);
                    }
                    SocketPlace::Mount(source)
                }
            };
            self.host_sockets.push(HostSocketPlan { mount: number, place, token });
        }
        self.shared_mounts = container.host_mounts().any(|(number, _)| !self.is_kept(number));
    }

    /// Takes the files of a mount from another container's place in the pod's shared directory: its
    /// directory, and the number there. `writable_there` says whether that place may be written to; the guest
    /// itself then enforces a read-only mount.
    pub fn take_from(
        &mut self,
        container: &ContainerSpec,
        number: usize,
        (directory, other): (&str, usize),
        writable_there: bool,
        paths: &GuestPaths,
    ) {
        let Some(asked) = container.mounts.get(number) else { return };
        let own = format!("{}/{}/{number}", paths.shared, share_name(&self.container_id));
        let place = format!("{}/{directory}/{other}", paths.shared);
        if let Some(mounts) = self.oci.mounts_mut() {
            guest_volumes::redirect(mounts, &own, &place, asked.readonly && writable_there);
        }
    }

    /// Returns true if the mount's files are the guest's, so that the host does not share them.
    fn is_kept(&self, number: usize) -> bool {
        let is_socket =
            |socket: &HostSocketPlan| socket.mount == number && matches!(socket.place, SocketPlace::Mount(_));
        self.guest_volumes.iter().any(|volume| volume.mount == number)
            || self.host_sockets.iter().any(is_socket)
    }
}

fn oci(
    pod: &PodSpec,
    container: &ContainerSpec,
    image: &ImageConfig,
    volumes: &[DeclaredVolumePlan],
    id: &str,
    paths: &GuestPaths,
) -> Result<Spec, SpecError> {
    let root = RootBuilder::default().path("rootfs").readonly(container.security.readonly_rootfs).build();
    let mut oci = SpecBuilder::default()
        .version("1.2.0")
        .root(root.expect("every field of the root has a default"))
        .process(process::process(pod, container, image)?)
        .mounts(mounts::mounts(container, volumes, id, paths))
        .linux(linux::linux(pod, container, id, paths))
        .build()
        .expect("every field of the spec has a default");
    // The builder sets its own host name, but the VM has the pod's.
    oci.set_hostname(None).set_annotations(None);
    Ok(oci)
}

fn block_devices(container: &ContainerSpec) -> Vec<BlockDevicePlan> {
    container
        .block_devices()
        .map(|(number, device)| BlockDevicePlan {
            device: number,
            path: device.container_path.clone(),
            permissions: device.permissions.clone(),
            uid: device.uid,
            gid: device.gid,
            mode: device.mode.unwrap_or(DISK_MODE),
        })
        .collect()
}

/// The container's own signal, else the image's, else SIGTERM. An invalid signal of the image is ignored,
/// because it is not the caller's fault.
fn stop_signal(container: &ContainerSpec, image: &ImageConfig) -> Result<Signal, SpecError> {
    match &container.stop_signal {
        Some(text) => parse_signal(text),
        None => Ok(parse_signal(&image.stop_signal).unwrap_or(Signal::TERM)),
    }
}
