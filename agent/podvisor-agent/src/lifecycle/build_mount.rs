//! A temporary mount during the build of a container: of a part of an image with owners mapped by the pod's
//! user namespace, of a part of a volume, or of an overlay. The container's mounts are made from it. They are
//! independent and stay.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use agent_container::syscall;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, move_mount};

use crate::lifecycle::layers::Layers;
use crate::user_namespace::UserNamespace;

/// One mount, unmounted when dropped.
#[derive(Debug)]
pub(super) struct BuildMount(PathBuf);

impl BuildMount {
    /// Makes `target` and mounts the directory or file at `path` there, with owners mapped by the namespace.
    pub(super) fn mapped(path: &Path, target: PathBuf, namespace: &UserNamespace) -> io::Result<BuildMount> {
        if fs::metadata(path)?.is_dir() {
            fs::create_dir_all(&target)?;
        } else {
            File::create(&target)?;
        }
        let tree = syscall::mapped_mount(path, namespace.user())?;
        move_mount(tree.as_fd(), "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(BuildMount(target))
    }

    /// Makes `target` and mounts the opened directory or file there, with owners mapped by the namespace, if
    /// there is one. Nothing is looked up by a name, because others could change it.
    pub(super) fn opened(
        file: &OwnedFd,
        target: PathBuf,
        namespace: Option<&UserNamespace>,
    ) -> io::Result<BuildMount> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        if let Some(namespace) = namespace {
            return BuildMount::mapped(&path, target, namespace);
        }
        if fs::metadata(&path)?.is_dir() {
            return BuildMount::directory(&path, target);
        }
        File::create(&target)?;
        mount(Some(&path), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(BuildMount(target))
    }

    /// Makes `target` and mounts the directory at `path` there.
    pub(super) fn directory(path: &Path, target: PathBuf) -> io::Result<BuildMount> {
        fs::create_dir_all(&target)?;
        mount(Some(path), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(BuildMount(target))
    }

    /// Makes `target` and mounts an overlay there.
    pub(super) fn overlay(layers: &Layers<'_>, target: PathBuf) -> io::Result<BuildMount> {
        fs::create_dir_all(&target)?;
        layers.mount(&target)?;
        Ok(BuildMount(target))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for BuildMount {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.0, MntFlags::MNT_DETACH) {
            tracing::warn!(%error, path = %self.0.display(), "a mount of a container's making could not be unmounted");
        }
    }
}
