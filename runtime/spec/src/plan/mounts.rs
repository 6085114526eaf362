//! Mounts inside the container: every container's mounts, from the guest's own kernel and memory; requested
//! ones, from the pod's shared directory and from images; and the volumes declared by the image.
//!
//! The host enforces write access to its files: a guest could break its promise. A mount of the host below
//! another keeps its own rights. A flag in the guest would take them away.

use std::path::Path;

use oci_spec::runtime::{Mount, MountBuilder};

use super::guest_paths::GuestPaths;
use crate::container_path::normalized;
use crate::{ContainerSecurity, ContainerSpec};

/// An image mounted by a container beside its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageVolumePlan {
    /// Index of the mount in the container's spec.
    pub mount: usize,
    /// Source of the bind mount in the OCI specification.
    pub source: String,
    /// Path in the image, resolved by the agent; empty for the whole image.
    pub sub_path: String,
}

/// A volume declared by the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredVolumePlan {
    /// Source of the bind mount in the OCI specification.
    pub source: String,
    /// Path in the container and in the image, absolute and without `..`.
    pub path: String,
}

/// Number of a container id's digits in the name of its directory in the pod's shared directory. They are as
/// good as unique.
const SHARE_NAME_DIGITS: usize = 24;

/// Name of the container's directory in the pod's shared directory. Mount number `n` of the container is `n`
/// in it.
pub fn share_name(container_id: &str) -> &str {
    container_id.get(..SHARE_NAME_DIGITS).unwrap_or(container_id)
}

/// All mounts, parents before their children, otherwise in the given order. A requested mount replaces our
/// own at the same path.
pub(super) fn mounts(
    container: &ContainerSpec,
    volumes: &[DeclaredVolumePlan],
    id: &str,
    paths: &GuestPaths,
) -> Vec<Mount> {
    let asked: Vec<Mount> =
        container.mounts.iter().enumerate().map(|(number, mount)| asked(number, mount, id, paths)).collect();
    let mut all = own(&container.security, paths);
    let tmpfs: Vec<Mount> = container.tmpfs.iter().map(memory).collect();
    all.retain(|own| {
        asked.iter().chain(&tmpfs).all(|mount| !replaces(mount.destination(), own.destination()))
    });
    let declared = |volume: &DeclaredVolumePlan| {
        mount(&volume.path, "bind", &volume.source, &["rbind", "rprivate", "rw"])
    };
    all.extend(volumes.iter().map(declared));
    all.extend(asked);
    all.extend(tmpfs);
    // A parent mounted after its child would cover it.
    // Stable: of two at one path the later one is visible.
    all.sort_by_key(|mount| mount.destination().components().count());
    all
}

/// Returns true if a requested mount replaces one of our own: at the same path, or below `/dev` and `/sys`.
/// These then belong to the volume. The pod's shared memory stays.
fn replaces(asked: &Path, own: &Path) -> bool {
    let is_whole = ["/dev", "/sys"].iter().any(|whole| asked == Path::new(whole));
    asked == own || (is_whole && own.starts_with(asked) && own != Path::new("/dev/shm"))
}

/// Returns true if the container has a mount at this path, other than a volume of its image.
pub(super) fn is_taken(container: &ContainerSpec, path: &Path, paths: &GuestPaths) -> bool {
    let of_host = container.mounts.iter().map(|mount| &mount.container_path);
    let mut asked = of_host.chain(container.tmpfs.iter().map(|tmpfs| &tmpfs.container_path));
    asked.any(|target| normalized(target) == path)
        || own(&container.security, paths).iter().any(|mount| mount.destination() == path)
}

fn asked(number: usize, mount: &crate::Mount, id: &str, paths: &GuestPaths) -> Mount {
    let destination = normalized(&mount.container_path);
    let destination = destination.to_str().unwrap_or(&mount.container_path);
    if !mount.image.is_empty() {
        let source = image_volume_source(number, paths);
        let mut options = vec!["bind", "rprivate", "nodev", "ro"];
        options.extend(flags(mount));
        return self::mount(destination, "bind", &source, &options);
    }
    if let Some(device) = mount.guest_device() {
        let access = if mount.readonly { "ro" } else { "rw" };
        return self::mount(
            destination,
            "bind",
            device.path,
            &["bind", "rprivate", "nosuid", "noexec", access],
        );
    }
    let source = format!("{}/{}/{number}", paths.shared, share_name(id));
    // A guest applies this to its own submounts too, so it is only set if that is intended.
    let access = if mount.recursive_read_only { "ro" } else { "rw" };
    let mut options = vec!["rbind", "rprivate", "nodev", access];
    options.extend(flags(mount));
    self::mount(destination, "bind", &source, &options)
}

/// The flags of a mount that may be asked for.
fn flags(mount: &crate::Mount) -> impl Iterator<Item = &'static str> {
    [mount.nosuid.then_some("nosuid"), mount.noexec.then_some("noexec")].into_iter().flatten()
}

fn memory(tmpfs: &crate::Tmpfs) -> Mount {
    let destination = normalized(&tmpfs.container_path);
    let destination = destination.to_str().unwrap_or(&tmpfs.container_path);
    let options: Vec<&str> = tmpfs.options.iter().map(String::as_str).collect();
    mount(destination, "tmpfs", "tmpfs", &options)
}

/// The images among the container's mounts.
pub(super) fn image_volumes(container: &ContainerSpec, paths: &GuestPaths) -> Vec<ImageVolumePlan> {
    let volumes = container.image_mounts();
    volumes
        .map(|(number, mount)| ImageVolumePlan {
            mount: number,
            source: image_volume_source(number, paths),
            sub_path: mount.image_sub_path.clone(),
        })
        .collect()
}

/// Placeholder for the place of the image until the agent knows it.
fn image_volume_source(number: usize, paths: &GuestPaths) -> String {
    format!("{}/{number}", paths.image_volumes)
}

fn own(security: &ContainerSecurity, paths: &GuestPaths) -> Vec<Mount> {
    // Only privileged containers may change kernel settings, and only those of their own guest.
    let access = if security.privileged { "rw" } else { "ro" };
    let file_access = if security.readonly_rootfs { "ro" } else { "rw" };
    let file = ["rbind", "rprivate", "nosuid", "nodev", file_access];
    let sys = ["nosuid", "noexec", "nodev", access];
    let cgroup = ["nosuid", "noexec", "nodev", "relatime", access];
    let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", "devpts", &pts),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &sys),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &cgroup),
        mount("/dev/shm", "bind", paths.shm, &["rbind", "rprivate", "nosuid", "noexec", "nodev", "rw"]),
        mount("/etc/resolv.conf", "bind", paths.resolv_conf, &file),
        mount("/etc/hosts", "bind", paths.hosts, &file),
        mount("/etc/hostname", "bind", paths.hostname, &file),
    ]
}

fn mount(destination: &str, typ: &str, source: &str, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(destination)
        .typ(typ)
        .source(source)
        .options(options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
        .build()
        .expect("all needed fields are set")
}
