//! The container's root: its mounts and devices, and the process's move into it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use rustix::process::{chdir, fchdir, pivot_root};

use super::{hidden, mounts, nodes};
use crate::launch::Failure;
use crate::syscall;

/// Enters the specification's root with all its mounts. The process must have its own mount namespace.
pub(super) fn enter(spec: &Spec) -> Result<(), Failure> {
    let missing =
        |what: &str| Failure::at("the specification is not complete", &io::Error::other(what.to_owned()));
    let root = spec.root().as_ref().ok_or_else(|| missing("it has no root"))?;
    let linux = spec.linux().as_ref().ok_or_else(|| missing("it has no linux part"))?;
    let all = spec.mounts().as_deref().unwrap_or_default();
    let failed = |error| Failure::at("cannot enter the container's root", &error);
    let directory = attach(root.path()).map_err(failed)?;
    mounts::make_all(&directory, all)?;
    if !mounts::bring_devices(all) {
        let namespaces = linux.namespaces().iter().flatten();
        let in_user_namespace = namespaces.into_iter().any(|one| one.typ() == LinuxNamespaceType::User);
        nodes::make(&directory, linux.devices().as_deref().unwrap_or_default(), in_user_namespace)?;
    }
    pivot(&directory).map_err(failed)?;
    drop(directory);
    hidden::protect(linux.readonly_paths().as_deref().unwrap_or_default())?;
    hidden::mask(linux.masked_paths().as_deref().unwrap_or_default())
}

/// Makes the root itself read-only, but none of the mounts in it.
pub(super) fn protect() -> Result<(), Failure> {
    let protect = || {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        syscall::set_mount_attributes(root.as_fd(), false, libc::MOUNT_ATTR_RDONLY, 0, 0)
    };
    protect().map_err(|error| Failure::at("cannot make the container's root read-only", &error))
}

/// Mounts the root over itself. A mount inherited with the namespace may belong to another user namespace,
/// and could not be moved.
fn attach(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let agents = openat(CWD, "/", flags, Mode::empty())?;
    syscall::set_mount_attributes(agents.as_fd(), true, 0, 0, libc::MS_PRIVATE)?;
    let mount = mounts::clone(root, true)?;
    move_mount(&mount, "", CWD, root, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(openat(CWD, root, flags, Mode::empty())?)
}

/// Makes the directory the process's root, and unmounts the agent's own mounts.
fn pivot(root: &OwnedFd) -> io::Result<()> {
    fchdir(root)?;
    // The old root now lies over the new one at the same path, and is unmounted there (pivot_root(2)).
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}
