//! Mounts below a container's root, before the process has entered the root. A mount is first created
//! detached, with all its attributes, and then moved to its place. No mount is made by a path of the
//! container's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Mount;
use rustix::fs::{CWD, FileType, fstat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::options::Options;
use super::place::{self, Kind, Place};
use crate::launch::Failure;
use crate::syscall;

/// The kernel's file systems. Their places must be ordinary directories of the root, because data written
/// there is meant for the kernel.
const OF_KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Files of `/proc` open to mounts: lxcfs uses them to show a container's limits.
const COVERABLE: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];

/// The bits of a file's mode without its kind (inode(7)).
const MODE_BITS: u32 = 0o7777;

/// Makes the mounts in their order.
pub(super) fn make_all(root: &OwnedFd, mounts: &[Mount]) -> Result<(), Failure> {
    mounts.iter().try_for_each(|mount| {
        let destination = mount.destination().display();
        make(root, mount)
            .map_err(|error| Failure::at_path(format_args!("cannot mount {destination}"), &error))
    })
}

fn make(root: &OwnedFd, mount: &Mount) -> io::Result<()> {
    let options = Options::parse(mount.options().as_deref().unwrap_or_default());
    let destination = mount.destination();
    let is_bind = has_source(mount, &options);
    let bound = is_bind.then(|| bound(mount, &options)).transpose()?;
    let kind = bound.as_ref().map_or(Kind::Directory, |(_, kind)| *kind);
    let is_of_kernel = OF_KERNEL.iter().any(|path| destination == Path::new(path));
    if is_of_kernel && !place::is_ordinary(root, destination)? {
        return Err(refused("the image has a link or a file there, and no directory"));
    }
    // Checked twice: the path as written, before anything is created there, and the path with its links
    // resolved.
    check_place(destination, !is_bind)?;
    let place = place::make(root, destination, kind)?;
    check_place(&place.path, !is_bind)?;
    let made = match bound {
        Some((made, _)) => made,
        None => of_file_system(mount, options, &place)?,
    };
    put(&made, &place.fd)
}

/// Returns true for a bind mount, and false for a new file system.
fn has_source(mount: &Mount, options: &Options) -> bool {
    options.bind.is_some() || mount.typ().as_deref() == Some("bind")
}

/// Returns true if a volume at `/dev` brings its own devices.
pub(super) fn bring_devices(mounts: &[Mount]) -> bool {
    let options = |mount: &Mount| Options::parse(mount.options().as_deref().unwrap_or_default());
    let mut at_dev = mounts.iter().filter(|mount| mount.destination() == Path::new("/dev"));
    at_dev.any(|mount| has_source(mount, &options(mount)))
}

/// Refuses the root and places of `/proc`, because programs and the agent itself trust them.
fn check_place(path: &Path, is_file_system: bool) -> io::Result<()> {
    if path == Path::new("/") {
        return Err(refused("a mount cannot be the container's root"));
    }
    let is_allowed = match path == Path::new("/proc") {
        true => is_file_system,
        false => COVERABLE.iter().any(|coverable| path == Path::new(coverable)),
    };
    if path.starts_with("/proc") && !is_allowed {
        return Err(refused(&format!("{} is of the kernel's proc file system", path.display())));
    }
    Ok(())
}

/// The error of a place that the specification may not have.
fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Moves a detached mount to its place.
pub(super) fn put(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount.as_fd(), "", place.as_fd(), "", flags)?)
}

/// A detached bind mount, and the kind of its place.
fn bound(mount: &Mount, options: &Options) -> io::Result<(OwnedFd, Kind)> {
    let source = mount.source().as_deref().ok_or(io::ErrorKind::InvalidInput)?;
    let recursive = options.bind == Some(true);
    let made = clone(source, recursive)?;
    // Mounts made by the container's programs must not propagate to the agent's.
    syscall::set_mount_attributes(made.as_fd(), true, 0, 0, libc::MS_PRIVATE)?;
    if !options.own.is_empty() {
        syscall::set_mount_attributes(made.as_fd(), false, options.own.set, options.own.clear, 0)?;
    }
    if !options.all.is_empty() {
        syscall::set_mount_attributes(made.as_fd(), true, options.all.set, options.all.clear, 0)?;
    }
    if let Some(propagation) = options.propagation.filter(|asked| asked.kind != libc::MS_PRIVATE) {
        syscall::set_mount_attributes(made.as_fd(), propagation.recursive, 0, 0, propagation.kind)?;
    }
    let is_directory = FileType::from_raw_mode(fstat(&made)?.st_mode).is_dir();
    Ok((made, if is_directory { Kind::Directory } else { Kind::File }))
}

/// A detached mount of a path of this process.
pub(super) fn clone(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, path, clone_flags(recursive))?)
}

/// A detached mount of an opened path.
pub(super) fn clone_opened(opened: &OwnedFd, recursive: bool) -> io::Result<OwnedFd> {
    Ok(open_tree(opened, "", clone_flags(recursive) | OpenTreeFlags::AT_EMPTY_PATH)?)
}

fn clone_flags(recursive: bool) -> OpenTreeFlags {
    let below = if recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | below
}

/// A new file system for this place.
fn of_file_system(mount: &Mount, mut options: Options, place: &Place) -> io::Result<OwnedFd> {
    let kind = match mount.typ().as_deref() {
        Some("cgroup") => "cgroup2",
        Some(kind) => kind,
        None => return Err(io::ErrorKind::InvalidInput.into()),
    };
    if kind == "tmpfs" && !place.made {
        // As in runc: a directory of the image keeps its mode. A mode among the options comes later, so it
        // counts.
        let mode = fstat(&place.fd)?.st_mode & MODE_BITS;
        options.of_file_system.insert(0, format!("mode={mode:04o}"));
    }
    let source = mount.source().as_deref().and_then(Path::to_str).unwrap_or(kind);
    new(kind, source, &options.of_file_system, options.own.set)
}

/// A detached new file system of this kind with these options and attributes.
pub(super) fn new(kind: &str, source: &str, options: &[String], attributes: u64) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    for option in options {
        let set = match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(&context, key, value),
            None => fsconfig_set_flag(&context, option.as_str()),
        };
        set.map_err(|errno| io::Error::other(format!("the option {option:?}: {errno}")))?;
    }
    fsconfig_create(&context)?;
    let attributes = u32::try_from(attributes).map(MountAttrFlags::from_bits_retain);
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes.map_err(io::Error::other)?)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use nix::sched::{CloneFlags, unshare};
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::{MountPropagationFlags, mount_change};
    use serde_json::json;

    use super::*;
    use crate::launch::FailureKind;

    #[test]
    fn a_place_that_cannot_have_a_mount_is_the_specifications_fault() {
        let dir = tempfile::tempdir().unwrap();
        let root = openat(CWD, dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
        std::os::unix::fs::symlink("/file", dir.path().join("sys")).unwrap();
        let failure = |destination: &str| {
            let mount = json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs" });
            make_all(&root, &[serde_json::from_value(mount).unwrap()]).unwrap_err()
        };
        for (destination, why) in [
            ("/file", "cannot mount /file: not a directory"),
            ("/file/below", "cannot mount /file/below: not a directory"),
            ("/circle", "cannot mount /circle: Too many symbolic links encountered"),
            ("/sys", "the image has a link or a file there, and no directory"),
            ("/proc/x", "/proc/x is of the kernel's proc file system"),
            ("/", "a mount cannot be the container's root"),
        ] {
            let failure = failure(destination);
            assert!(failure.message.ends_with(why), "{failure}");
            assert_eq!(failure.kind, FailureKind::Spec, "{failure}");
        }
        let mount = json!({ "destination": "/new", "type": "nosuchfs", "source": "none" });
        let unknown = make_all(&root, &[serde_json::from_value(mount).unwrap()]).unwrap_err();
        assert_eq!(unknown.kind, FailureKind::Other, "{unknown}");
    }

    #[test]
    fn a_tmpfs_has_the_mode_of_its_directory_unless_its_options_say_otherwise() {
        if unshare(CloneFlags::CLONE_NEWNS).is_err() {
            eprintln!("skipped: needs the privilege to mount");
            return;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = openat(CWD, dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for (name, had, options, has) in [
            ("closed", Some(0o700), &["size=1m", "nosuid"][..], 0o700),
            ("shared", Some(0o3770), &[], 0o3770),
            ("asked", Some(0o700), &["mode=0750"], 0o750),
            ("missing", None, &[], 0o1777),
        ] {
            let path = dir.path().join(name);
            if let Some(mode) = had {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            let mount = json!({
                "destination": format!("/{name}"), "type": "tmpfs", "source": "tmpfs", "options": options
            });
            make(&root, &serde_json::from_value(mount).unwrap()).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & MODE_BITS;
            assert_eq!(mode, has, "{name}: {mode:o}");
        }
    }
}
