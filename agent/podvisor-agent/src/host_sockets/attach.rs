//! Mounts a listener over its socket's file in a container's directory. A thread enters the container's mount
//! namespace and mounts there. So changes by the container's programs stay in their namespace, and the
//! agent's namespace shares nothing with it.
//!
//! The directory is found once, before the container's program runs, and kept open. A program cannot redirect
//! the mount by renaming directories. Links below the directory are not followed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// A listener and its place in a container.
#[derive(Debug)]
pub(super) struct Attachment {
    listener: PathBuf,
    directory: PathBuf,
    sub_path: PathBuf,
    /// The directory as mounted in the container.
    opened: OnceLock<OwnedFd>,
}

impl Attachment {
    /// The place is a directory in the container and a path below it.
    pub(super) fn new(listener: PathBuf, (directory, sub_path): (&Path, &Path)) -> Attachment {
        let (directory, sub_path) = (directory.to_owned(), sub_path.to_owned());
        Attachment { listener, directory, sub_path, opened: OnceLock::new() }
    }
}

/// Mounts each listener over its socket's file, if the file exists and is not covered yet. `pid` is a process
/// of the container. The calling thread cannot be used for anything else afterwards.
pub(super) fn attach_all(pid: i32, attachments: &[Attachment]) -> io::Result<()> {
    let namespace =
        openat(CWD, format!("/proc/{pid}/ns/mnt"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let namespace = match namespace {
        Ok(namespace) => namespace,
        // The container has ended.
        Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    // The listeners' paths are valid for the agent, and the directories' for the container.
    let clones = attachments.iter().map(|attachment| clone_of(&attachment.listener));
    let clones: Vec<OwnedFd> = clones.collect::<Result<_, _>>()?;
    // The root and working directory belong to the whole process until a thread unshares them.
    unshare(CloneFlags::CLONE_FS)?;
    setns(namespace, CloneFlags::CLONE_NEWNS)?;
    attachments.iter().zip(&clones).try_for_each(|(attachment, clone)| attach(attachment, clone))
}

/// A mount of the listener's file alone, attached nowhere.
fn clone_of(listener: &Path) -> rustix::io::Result<OwnedFd> {
    open_tree(CWD, listener, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

fn attach(attachment: &Attachment, clone: &OwnedFd) -> io::Result<()> {
    let directory = match attachment.opened.get() {
        Some(directory) => directory,
        None => {
            let opened = open_directory(&attachment.directory)?;
            attachment.opened.get_or_init(|| opened)
        }
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let place = match openat2(directory, &attachment.sub_path, flags, Mode::empty(), resolve) {
        Ok(place) => place,
        // The socket does not exist (yet), or the path leads through a link or out of the directory.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let (there, ours) = (fstat(&place)?, fstat(clone)?);
    let is_socket = FileType::from_raw_mode(there.st_mode) == FileType::Socket;
    if !is_socket || (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) {
        return Ok(());
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    match move_mount(clone, "", place.as_fd(), "", flags) {
        // The file was removed meanwhile. The daemon reports a new one.
        Err(Errno::NOENT | Errno::INVAL) => Ok(()),
        moved => Ok(moved?),
    }
}

/// Opens a directory of the container. The thread is in its namespace.
fn open_directory(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, "/", flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, directory, flags, Mode::empty(), resolve)?)
}
