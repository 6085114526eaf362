//! A container resolved: from what is asked for, and what the image says, to what the agent is sent.
//!
//! A [`ContainerPlan`] is made in one place, here, and sent as such: the OCI runtime specification and
//! beside it all that the specification cannot say. Only the slots of what is plugged for the container
//! are filled in later, by the driver that plugs them, and volumes that the guest keeps itself are put in by the driver that
//! looks at the host.
//!
//! Network, IPC and host name are the VM's, so containers get no namespaces for those. The agent resolves the
//! user, since it can read the image's passwd file.

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

/// All that the agent needs to create a container.
#[derive(Clone, Debug)]
pub struct ContainerPlan {
    /// Id of the container, 64 hex digits.
    pub container_id: String,
    /// OCI runtime specification. The agent fills in its root path and its user.
    pub oci: Spec,
    /// User as `user[:group]`, for the agent to look up in the image; empty for root.
    pub user: String,
    /// Whether groups that the image's group file gives the user are left out.
    pub strict_groups: bool,
    /// Whether the container has a terminal.
    pub tty: bool,
    /// Whether a client may open the container's input.
    pub stdin: bool,
    /// Container whose PID namespace this one joins.
    pub pid_target: Option<String>,
    /// Whether every device node of the guest appears in the container.
    pub guest_devices: bool,
    /// Whether a mount comes from the pod's shared directory.
    pub shared_mounts: bool,
    /// Images that the container mounts beside its own.
    pub image_volumes: Vec<ImageVolumePlan>,
    /// Volumes that the guest keeps itself; none before [`ContainerPlan::keep_in_guest`].
    pub guest_volumes: Vec<GuestVolumePlan>,
    /// Sockets of the node; none before [`ContainerPlan::lead_to_sockets`].
    pub host_sockets: Vec<HostSocketPlan>,
    /// Volumes that the container's image declares.
    pub declared_volumes: Vec<DeclaredVolumePlan>,
    /// Block devices of the host that the container has.
    pub block_devices: Vec<BlockDevicePlan>,
    /// Limits: files of the container's cgroup (v2) and their values.
    pub cgroup_files: BTreeMap<String, String>,
    /// Filter of system calls; none before [`ContainerPlan::filter_by`].
    pub syscall_filter: Option<Arc<Filter>>,
    /// Most bytes of the writable layer; `None`, as before anybody names one, for no limit but the scratch disk's.
    pub writable_layer_bytes: Option<u64>,
    /// Signal that asks the container to end. The agent does not need it; the driver sends it.
    pub stop_signal: Signal,
}

/// A block device of the host that a container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevicePlan {
    /// Index of the device in the container's spec.
    pub device: usize,
    /// Path of its node in the container.
    pub path: String,
    /// Permissions, some of `rwm`.
    pub permissions: String,
    /// Owner of the node, as the container has users.
    pub uid: u32,
    /// Group of the node, as the container has groups.
    pub gid: u32,
    /// Mode of the node; 0660 where none was asked for.
    pub mode: u32,
}

/// Numbers of the VM's slots that hold what a container needs: the image, then image volumes and block
/// devices in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSlots {
    /// Slot of the container's image.
    pub image: u8,
    /// One slot for each of [`ContainerPlan::image_volumes`].
    pub image_volumes: Vec<u8>,
    /// One slot for each of [`ContainerPlan::block_devices`].
    pub block_devices: Vec<u8>,
}

/// Mode of a disk's node: what the kernel's own have.
const DISK_MODE: u32 = 0o660;

impl ContainerPlan {
    /// Resolves a container of `pod` from its image. `id` is the container's.
    ///
    /// # Errors
    /// A field of the spec that makes no sense or cannot be had, by its name.
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

    /// Sends this filter in place of the rules that it was compiled from. An agent from before version 6 of its protocol takes rules alone.
    pub fn filter_by(&mut self, filter: Arc<Filter>) {
        if let Some(linux) = self.oci.linux_mut() {
            linux.set_seccomp(None);
        }
        self.syscall_filter = Some(filter);
    }

    /// Has the guest keep these volumes, which are mounts of the container that [`ContainerPlan::resolve`] has the host
    /// share. The guest itself enforces then that a mount is read-only.
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

    /// Has the agent lead the container's programs to sockets of the node: each with the number of its mount, the path of
    /// the socket in that mount (`None` where the mount is the socket), and its secret. A mount that is a socket is not
    /// shared by the host then.
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

    /// Whether the mount's files are the guest's, so that the host does not share them.
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
    // The builder has a host name of its own; the VM has the pod's.
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

/// The container's own signal, else the image's, else SIGTERM. An image's nonsense is not the caller's
/// fault and counts as none.
fn stop_signal(container: &ContainerSpec, image: &ImageConfig) -> Result<Signal, SpecError> {
    match &container.stop_signal {
        Some(text) => parse_signal(text),
        None => Ok(parse_signal(&image.stop_signal).unwrap_or(Signal::TERM)),
    }
}
