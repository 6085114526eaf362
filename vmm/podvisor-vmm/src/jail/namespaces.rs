//! The processes' own namespaces. The root is empty for the VMM and the pod's shared directory for the
//! share. The network has no interfaces, there is no System V IPC, and the share sees no other process.

use std::fs::File;
use std::io;

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, pivot_root};
use proto_vmm::VolumeCache;
use vmm_vm::{Cache, Share};

use super::error::{JailError, failed};

/// Two directories of every Linux system. Something is mounted over them for a moment.
const MOUNT_POINTS: [&str; 2] = ["/proc", "/dev"];

const LOCKED: MsFlags = MsFlags::MS_NOEXEC.union(MsFlags::MS_NOSUID).union(MsFlags::MS_NODEV);

/// Leaves the node's network and IPC namespaces.
pub(super) fn begin(privileged: bool) -> Result<(), JailError> {
    check_shared_directory()?;
    let mut flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC;
    if !privileged {
        // Without privileges, only a user namespace permits the others.
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(failed("make namespaces"))
}

/// Runs `start`, and the process it starts is the first in a PID namespace of its own. Later threads of the
/// caller stay in the caller's.
pub(crate) fn with_processes_of_its_own<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let callers = File::open("/proc/self/ns/pid")?;
    let made = unshare(CloneFlags::CLONE_NEWPID);
    made.map_err(|error| io::Error::other(format!("a PID namespace cannot be made: {error}")))?;
    let started = start();
    setns(callers, CloneFlags::CLONE_NEWPID)?;
    started
}

/// Makes an empty directory the root.
pub(super) fn enter_empty() -> Result<(), JailError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
    let none = None::<&str>;
    let enter = || {
        // The host's later mounts are not seen here, and none of ours there.
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let root = MOUNT_POINTS[0];
        let flags = LOCKED | MsFlags::MS_RDONLY;
        mount(Some("podvisor-vmm"), root, Some("tmpfs"), flags, Some("nr_inodes=1,mode=0500"))?;
        pivot_to(root)
    };
    enter().map_err(failed("make an empty directory the root"))
}

/// Makes the shared directory the root. `descriptors_max` bounds the share's descriptors.
pub(super) fn enter_shared(descriptors_max: i32, volume_cache: VolumeCache) -> Result<Share, JailError> {
    check_shared_directory()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
    hide_processes().map_err(failed("leave nothing of /proc but the process's own descriptors"))?;
    let cache = match volume_cache {
        VolumeCache::None => Cache::None,
        VolumeCache::Auto => Cache::Auto,
        VolumeCache::Always => Cache::Always,
    };
    let share = Share::open("/", descriptors_max, cache).map_err(failed("open the share"))?;
    change_root().map_err(failed("make the shared directory the root"))?;
    Ok(share)
}

fn check_shared_directory() -> Result<(), JailError> {
    let shared = std::env::current_dir().map_err(failed("find the shared directory"))?;
    if shared == std::path::Path::new("/") {
        let error = std::io::Error::other("the process was started in /");
        return Err(failed("take the shared directory as root")(error));
    }
    Ok(())
}

/// Leaves nothing of /proc but /proc/self/fd. Known files are opened by their names there. A mount of this
/// directory alone has no way up to the rest of /proc.
fn hide_processes() -> nix::Result<()> {
    let none = None::<&str>;
    // The host's later mounts are seen here, none of ours there.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    let [proc, aside] = MOUNT_POINTS;
    let keep = format!("{aside}/fd");
    mount(Some("podvisor-share"), aside, Some("tmpfs"), LOCKED, Some("nr_inodes=2,mode=0700"))?;
    nix::unistd::mkdir(keep.as_str(), Mode::S_IRWXU)?;
    mount(Some("/proc/self/fd"), keep.as_str(), none, MsFlags::MS_BIND, none)?;
    mount(Some("podvisor-share"), proc, Some("tmpfs"), LOCKED, Some("nr_inodes=4,mode=0700"))?;
    for directory in ["/proc/self", "/proc/self/fd"] {
        nix::unistd::mkdir(directory, Mode::S_IRWXU)?;
    }
    // The library opens the list of mounts, and never reads it in our use.
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    drop(nix::fcntl::open("/proc/self/mountinfo", flags, Mode::S_IRUSR)?);
    mount(Some(keep.as_str()), "/proc/self/fd", none, MsFlags::MS_BIND, none)
}

/// Makes the working directory the process's root. The directory holds the daemon's mount points and
/// becomes read-only. Mounts below it may be written to as each mount says.
fn change_root() -> nix::Result<()> {
    let none = None::<&str>;
    let root = MOUNT_POINTS[0];
    mount(Some("."), root, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
    pivot_to(root)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | LOCKED;
    mount(none, "/", none, read_only, none)
}

/// Makes a mount the root, and leaves nothing of the old one.
fn pivot_to(root: &str) -> nix::Result<()> {
    chdir(root)?;
    // The old root ends up on top of the new one, and is detached from there.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")
}
