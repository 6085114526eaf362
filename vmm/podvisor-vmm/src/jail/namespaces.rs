//! Namespaces of its own: an empty read-only root, a network without interfaces, no System V IPC.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, chdir, pivot_root};

use super::{JailError, failed};

/// Any directory that each Linux system has: the empty root is mounted over it for a moment.
const MOUNT_POINT: &str = "/proc";

pub(super) fn enter() -> Result<(), JailError> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC;
    if !Uid::effective().is_root() {
        // Without privileges a user namespace is what permits the others.
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(failed("make namespaces"))?;
    empty_root().map_err(failed("replace the root by an empty one"))
}

fn empty_root() -> nix::Result<()> {
    let none = None::<&str>;
    // Nothing of what follows may reach the host's mounts.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("podvisor-vmm"), MOUNT_POINT, Some("tmpfs"), flags, Some("nr_inodes=1,mode=0555"))?;
    chdir(MOUNT_POINT)?;
    // The old root ends up on top of the new one, from where it is detached.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")
}
