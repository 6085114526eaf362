//! All binds of one container, at `<shared>/<container>/<number>`: created and removed together. `tree.rs`
//! makes a single bind.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use runtime_fail_points::{Point, pass};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::fchdir;

use crate::bind::{Bind, Owners};
use crate::directory::open_directory;
use crate::error::ShareError;
use crate::mount_namespace::MountNamespace;
use crate::tree::{Kind, Tree};
use crate::user_namespace;

/// Most stacked mounts removed at one place. Normally there is one.
const STACKED_MAX: usize = 8;

/// Binds each of `binds` to `<shared>/<container>/<its number>`, in `namespace` only. Leaves nothing behind
/// if one fails. `shared` must exist and be the namespace's root.
///
/// A path on an unreachable server may take longer than the caller waits. `given_up` says whether the caller
/// has gone. It may have removed the binds by then, and removes none later, so nothing stays behind.
///
/// # Errors
/// A path is missing or cannot be shared, the kernel refuses, or the caller has given up.
pub fn bind_all<'a>(
    namespace: &MountNamespace,
    shared: &Path,
    container: &str,
    binds: impl IntoIterator<Item = (usize, &'a Bind)>,
    given_up: impl Fn() -> bool,
) -> Result<(), ShareError> {
    let binds: Vec<_> = binds.into_iter().collect();
    let numbers: Vec<usize> = binds.iter().map(|(number, _)| *number).collect();
    let bound = bind_each(namespace, shared, container, &binds, given_up);
    if bound.is_err() {
        // The caller gets the first failure. Anything not undone now goes with the shared directory.
        let _ = unbind_all(Some(namespace), shared, container, numbers.iter().copied())
            .or_else(|_| unbind_all(None, shared, container, numbers));
    }
    bound
}

fn bind_each(
    namespace: &MountNamespace,
    shared: &Path,
    container: &str,
    binds: &[(usize, &Bind)],
    given_up: impl Fn() -> bool,
) -> Result<(), ShareError> {
    let wanted = || if given_up() { Err(ShareError::GivenUp) } else { Ok(()) };
    // All sources are cloned before anything is created in the shared directory.
    let mut user_namespaces = UserNamespaces::default();
    let mut trees: Vec<(usize, Tree)> = Vec::new();
    for (number, bind) in binds {
        wanted()?;
        trees.push((*number, Tree::clone_of(bind, user_namespaces.of(bind)?)?));
    }
    let place = shared.join(container);
    let failed = |action| {
        let place = &place;
        move |errno: Errno| io_error(action, place, errno.into())
    };
    let parent = open_directory(CWD, shared).map_err(|errno| io_error("open", shared, errno.into()))?;
    pass(Point::ShareBind).map_err(|source| io_error("make", &place, source))?;
    wanted()?;
    mkdirat(&parent, container, Mode::from_raw_mode(0o755)).map_err(failed("make"))?;
    let directory = open_directory(&parent, container).map_err(failed("open"))?;
    for (number, tree) in &trees {
        make_point(&directory, *number, tree.kind).map_err(failed("make a place in"))?;
    }
    pass(Point::ShareMount).map_err(|source| io_error("mount in", &place, source))?;
    let attach = |root: OwnedFd| {
        let directory = open_directory(&root, container)?;
        trees.iter().try_for_each(|(number, tree)| tree.attach(open_point(&directory, *number)?.as_fd()))
    };
    namespace
        .within(&parent, attach)
        .map_err(|source| io_error("mount in", &shared.join(container), source))?;
    // A caller who gives up after this check finds all binds to remove.
    wanted()
}

/// The user namespaces for mapping owners. A container's binds with equal owners share one.
#[derive(Default)]
struct UserNamespaces(Vec<(Owners, OwnedFd)>);

impl UserNamespaces {
    fn of(&mut self, bind: &Bind) -> Result<Option<BorrowedFd<'_>>, ShareError> {
        let Some(owners) = bind.owners else { return Ok(None) };
        let known = self.0.iter().position(|(known, _)| *known == owners);
        let place = known.unwrap_or(self.0.len());
        if known.is_none() {
            let made = user_namespace::make(&owners)
                .map_err(|source| io_error("make a user namespace for", &bind.source, source))?;
            self.0.push((owners, made));
        }
        Ok(self.0.get(place).map(|(_, namespace)| namespace.as_fd()))
    }
}

/// Removes the binds with these numbers, and their directory. The call is idempotent: a missing bind is no
/// error. The bound files are not touched, even if they are still open. `namespace` is `None` if the VMM has
/// ended: its binds have ended too.
///
/// # Errors
/// The kernel's refusal. Some binds may be left for another try.
pub fn unbind_all(
    namespace: Option<&MountNamespace>,
    shared: &Path,
    container: &str,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<(), ShareError> {
    let failed = |action| {
        let place = shared.join(container);
        move |errno: Errno| io_error(action, &place, errno.into())
    };
    let parent = match open_directory(CWD, shared) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(io_error("open", shared, errno.into())),
    };
    let directory = match open_directory(&parent, container) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed("open")(errno)),
    };
    let names: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    let detach_all = |root: OwnedFd| {
        match open_directory(&root, container) {
            // Work for a caller that has given up removed it meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            directory => fchdir(directory?)?,
        }
        names.iter().try_for_each(|name| detach(name))
    };
    pass(Point::ShareUnmount).map_err(|source| io_error("unmount in", &shared.join(container), source))?;
    if let Some(namespace) = namespace {
        let detached = namespace.within(&parent, detach_all);
        detached.map_err(|source| io_error("unmount in", &shared.join(container), source))?;
    }
    pass(Point::ShareRemove).map_err(|source| io_error("clear", &shared.join(container), source))?;
    for name in &names {
        remove_point(&directory, name).map_err(failed("clear"))?;
    }
    drop(directory);
    match unlinkat(&parent, container, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // A guest put something there. It goes with the shared directory.
        Err(Errno::NOTEMPTY) => Ok(()),
        Err(errno) => Err(failed("remove")(errno)),
    }
}

/// Creates an empty file or directory.
fn make_point(directory: &OwnedFd, number: usize, kind: Kind) -> rustix::io::Result<()> {
    let name = number.to_string();
    match kind {
        Kind::Directory => mkdirat(directory, &name, Mode::from_raw_mode(0o755)),
        Kind::File => mknodat(directory, &name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
    }
}

fn open_point(directory: &OwnedFd, number: usize) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, number.to_string(), flags, Mode::empty())
}

/// Unmounts everything mounted at the name in the working directory, even if it is in use.
fn detach(name: &str) -> rustix::io::Result<()> {
    for _ in 0..STACKED_MAX {
        match unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Nothing is mounted there (any more), or the place itself is gone.
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes an empty file or directory. The kernel refuses if something is still mounted.
fn remove_point(directory: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let removed = match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(directory, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> ShareError {
    ShareError::Io { action, path: path.to_owned(), source }
}
