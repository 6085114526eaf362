//! A mount that shows owners as the pod's user namespace maps them, for as long as a container is being built. Mounts
//! that are made from it are mounts of their own, and stay.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_container::syscall;
use nix::mount::{MntFlags, umount2};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, move_mount};

use crate::user_namespace::UserNamespace;

/// One mapped mount, unmounted when dropped.
#[derive(Debug)]
pub(super) struct MappedMount(PathBuf);

impl MappedMount {
    /// Mounts the directory or file at `path` at `target`, which is made.
    pub(super) fn mount(path: &Path, target: PathBuf, namespace: &UserNamespace) -> io::Result<MappedMount> {
        if fs::metadata(path)?.is_dir() {
            fs::create_dir_all(&target)?;
        } else {
            File::create(&target)?;
        }
        let tree = syscall::mapped_mount(path, namespace.user())?;
        move_mount(tree.as_fd(), "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(MappedMount(target))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MappedMount {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.0, MntFlags::MNT_DETACH) {
            tracing::warn!(%error, path = %self.0.display(), "a mapped mount could not be unmounted");
        }
    }
}
