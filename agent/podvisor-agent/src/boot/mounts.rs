//! First step: mounts the kernel's file systems, and `/run`, the only writable place of the guest's root.
//! Images, disks and shared directories are mounted later, when a container needs them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::MsFlags;

/// A failed mount: the root image or the kernel does not fit the agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("cannot mount {kind} on {target}")]
    Mount { kind: &'static str, target: &'static str, source: nix::Error },
    #[error("cannot make {path}")]
    MakeDirectory { path: &'static str, source: std::io::Error },
}

struct Mount {
    kind: &'static str,
    target: &'static str,
    flags: MsFlags,
    data: &'static str,
}

/// The mounts in their order: `/dev` before `/dev/pts`, and `/sys` before the cgroups.
fn table() -> [Mount; 6] {
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    let device = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    [
        Mount { kind: "proc", target: "/proc", flags: safe, data: "" },
        Mount { kind: "sysfs", target: "/sys", flags: safe, data: "" },
        Mount { kind: "devtmpfs", target: "/dev", flags: device, data: "mode=0755" },
        Mount { kind: "devpts", target: "/dev/pts", flags: device, data: "gid=5,mode=620,ptmxmode=666" },
        // tmpfs bounds itself to half of the memory.
        Mount {
            kind: "tmpfs",
            target: "/run",
            flags: MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            data: "mode=0755",
        },
        // `nsdelegate`: a container with its own cgroup mount may change cgroups below its own, but not its
        // own limits. `memory_recursiveprot`: memory protection (`memory.min`, `memory.low`) also applies to
        // all cgroups below.
        Mount {
            kind: "cgroup2",
            target: "/sys/fs/cgroup",
            flags: safe,
            data: "nsdelegate,memory_recursiveprot",
        },
    ]
}

/// The agent's directories below `/run`.
const DIRECTORIES: [&str; 4] =
    ["/run/podvisor", "/run/podvisor/pod", "/run/podvisor/images", "/run/podvisor/containers"];

pub(super) fn run() -> Result<(), MountError> {
    for mount in table() {
        if mount.target == "/dev/pts" {
            make_directory(mount.target, 0o755)?;
        }
        match nix::mount::mount(
            Some(mount.kind),
            Path::new(mount.target),
            Some(mount.kind),
            mount.flags,
            Some(mount.data),
        ) {
            // The kernel mounts /dev itself if CONFIG_DEVTMPFS_MOUNT is set.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(source) => return Err(MountError::Mount { kind: mount.kind, target: mount.target, source }),
        }
    }
    DIRECTORIES.into_iter().try_for_each(|path| make_directory(path, 0o711))
}

fn make_directory(path: &'static str, mode: u32) -> Result<(), MountError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(MountError::MakeDirectory { path, source })
        }
        _ => Ok(()),
    }
}
