//! One bind: the source's mount tree is cloned unattached, gets its attributes, and only then is attached. So
//! a guest can never write to a read-only bind, not even for a moment. `container_binds.rs` chooses the
//! place.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::bind::{Access, Bind, Propagation};
use crate::error::ShareError;
use crate::propagation;
use crate::setattr::{self, Attributes};

/// The kind of a bound path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// A clone of a source's mount tree, not attached anywhere. Dropping an unattached clone frees it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    pub(crate) kind: Kind,
}

impl Tree {
    /// Clones the source and sets the clone's attributes. `owners` is the user namespace for mapping owners.
    /// A missing source is created as a directory, unless it must exist.
    pub(crate) fn clone_of(bind: &Bind, owners: Option<BorrowedFd<'_>>) -> Result<Tree, ShareError> {
        let path = &bind.source;
        let failed = |action| move |source: io::Error| ShareError::Io { action, path: path.clone(), source };
        let source = match open(path) {
            // As in other runtimes: a hostPath without a type may name a missing path.
            Err(Errno::NOENT) if !bind.must_exist => {
                std::fs::create_dir_all(path).map_err(failed("make the directory of host path"))?;
                open(path)
            }
            opened => opened,
        };
        let source = match source {
            Ok(source) => source,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(ShareError::Missing { path: path.clone() }),
            Err(errno) => return Err(failed("open host path")(errno.into())),
        };
        let kind = kind(&source, path)?;
        let source = match kind {
            Kind::Directory => open_directory(path).map_err(|e| failed("enter host path")(e.into()))?,
            Kind::File => source,
        };
        if bind.propagation == Propagation::HostToContainer
            && !propagation::receives(source.as_fd()).map_err(failed("look at the mount of host path"))?
        {
            return Err(ShareError::NotShared { path: path.clone() });
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let root = open_tree(&source, "", flags).map_err(|e| failed("bind host path")(e.into()))?;
        if let Some(owners) = owners {
            map_owners(root.as_fd(), owners)
                .map_err(|source| ShareError::NotMappable { path: path.clone(), source })?;
        }
        set_attributes(root.as_fd(), bind).map_err(failed("set the attributes of host path"))?;
        Ok(Tree { root, kind })
    }

    /// Attaches the tree onto an open file or directory.
    pub(crate) fn attach(&self, onto: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.root, "", onto, "", flags)
    }
}

/// Opens a host path. Opening a device or a pipe as a path has no effect, and an automount stays unmounted.
/// The later checks and the clone of a file use this same open file.
pub(crate) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a host path known as a directory, with the effect of a mount by path in other runtimes: an
/// automount, or a file system below a network one, is mounted first. In a clone without it, programs would
/// find an empty directory, or wait for a mount that never comes. The later checks and the clone use this
/// open directory.
pub(crate) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Maps the owners of the whole tree, or of nothing: files on mounts below have owners too.
fn map_owners(root: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let user_namespace = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?;
    setattr::set(root, true, &Attributes { set: setattr::MAPPED, user_namespace, ..Attributes::default() })
}

fn set_attributes(root: BorrowedFd<'_>, bind: &Bind) -> io::Result<()> {
    let propagation = match bind.propagation {
        Propagation::Private => setattr::PRIVATE,
        // A clone of a shared mount is its peer and would propagate mounts back to the host.
        Propagation::HostToContainer => setattr::SLAVE,
    };
    // Device files in a volume never open a device of the node, however the node has mounted the volume. A
    // guest has its own devices, and a compromised VMM gets none.
    let set = setattr::NO_DEVICES | setattr::NO_SET_USER;
    setattr::set(root, true, &Attributes { set, propagation, ..Attributes::default() })?;
    let read_only = Attributes { set: setattr::READ_ONLY, ..Attributes::default() };
    match bind.access {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly => setattr::set(root, false, &read_only),
        Access::ReadOnlyRecursive => setattr::set(root, true, &read_only),
    }
}

/// Returns the kind of the source, or refuses it. A socket's or a pipe's other end is in the node's kernel. A
/// device's number would mean another device in the guest.
fn kind(source: &OwnedFd, path: &Path) -> Result<Kind, ShareError> {
    let found = fstat(source).map_err(|errno| ShareError::Io {
        action: "look at host path",
        path: path.to_owned(),
        source: errno.into(),
    })?;
    let refused = |kind| Err(ShareError::Kind { path: path.to_owned(), kind });
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::RegularFile => Ok(Kind::File),
        FileType::Socket => Err(ShareError::Socket { path: path.to_owned() }),
        FileType::Fifo => refused("named pipe"),
        FileType::BlockDevice | FileType::CharacterDevice => refused("device"),
        _ => refused("file of this kind"),
    }
}
