//! Places in a container's root. A path is resolved with all its links as seen by the container, and missing
//! parts are created.
//!
//! The root and the volumes in it are hostile. A link never leads out of the root: each name is looked up
//! alone, in a directory reached without links, and links are resolved here. The target of a dangling link is
//! created, as in other runtimes: images have such links at `/etc/resolv.conf` and `/var/run`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

/// Most links in a path, the kernel's own limit (`MAXSYMLINKS`, include/linux/namei.h).
const LINKS_MAX: usize = 40;

/// The kind of file at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    /// Anything but a directory. If the place is missing, a file is created.
    File,
}

/// An existing place.
#[derive(Debug)]
pub(super) struct Place {
    /// The place itself, opened as a path.
    pub(super) fd: OwnedFd,
    /// Its path from the root, without links.
    pub(super) path: PathBuf,
    /// Whether it was missing before.
    pub(super) made: bool,
}

/// A walk from the root: names already passed, and names ahead.
struct Walk<'a> {
    root: &'a OwnedFd,
    passed: Vec<OsString>,
    ahead: VecDeque<OsString>,
    links: usize,
    /// Whether the last passed name was created.
    made: bool,
}

/// Finds or creates the place of `path` in `root`, with all directories above.
pub(super) fn make(root: &OwnedFd, path: &Path, kind: Kind) -> io::Result<Place> {
    let mut walk = Walk { root, passed: Vec::new(), ahead: names(path), links: 0, made: false };
    while let Some(name) = walk.ahead.pop_front() {
        if name == ".." {
            walk.passed.pop();
            walk.made = false;
            continue;
        }
        walk.step(&name, kind)?;
    }
    let fd = walk.open(walk.passed.iter())?;
    let is_directory = FileType::from_raw_mode(fstat(&fd)?.st_mode).is_dir();
    match (kind, is_directory) {
        (Kind::Directory, false) => Err(io::ErrorKind::NotADirectory.into()),
        (Kind::File, true) => Err(io::ErrorKind::IsADirectory.into()),
        _ => {
            let path = Path::new("/").join(walk.passed.iter().collect::<PathBuf>());
            Ok(Place { fd, path, made: walk.made })
        }
    }
}

/// Finds or creates the directory above `path`'s last name. Returns it with that name; the name itself may be
/// missing.
pub(super) fn parent<'a>(root: &OwnedFd, path: &'a Path) -> io::Result<(Place, &'a OsStr)> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((make(root, above, Kind::Directory)?, name))
}

/// Returns true if `path` is a directory or missing, without links in any part: a place for the kernel's own
/// file systems.
pub(super) fn is_ordinary(root: &OwnedFd, path: &Path) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let relative = path.strip_prefix("/").unwrap_or(path);
    match openat2(root, relative, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS) {
        Ok(_) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::LOOP | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl Walk<'_> {
    /// Takes one name: passes it, creates it, or puts a link's target ahead.
    fn step(&mut self, name: &OsStr, kind: Kind) -> io::Result<()> {
        let parent = self.open(self.passed.iter())?;
        let found = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                let is_last = self.ahead.is_empty();
                self.make_one(&parent, name, if is_last { kind } else { Kind::Directory })?;
                self.passed.push(name.to_owned());
                self.made = true;
                return Ok(());
            }
            found => FileType::from_raw_mode(found?.st_mode),
        };
        if !found.is_symlink() {
            if !found.is_dir() && !self.ahead.is_empty() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            self.passed.push(name.to_owned());
            self.made = false;
            return Ok(());
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(&parent, name, Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            self.passed.clear();
        }
        let rest = std::mem::take(&mut self.ahead);
        self.ahead = names(target).into_iter().chain(rest).collect();
        Ok(())
    }

    fn make_one(&self, parent: &OwnedFd, name: &OsStr, kind: Kind) -> io::Result<()> {
        let made = match kind {
            Kind::Directory => mkdirat(parent, name, Mode::from_raw_mode(0o755)),
            Kind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(parent, name, flags | OFlags::WRONLY, Mode::from_raw_mode(0o644)).map(drop)
            }
        };
        match made {
            // Another container of the pod was first.
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Opens the passed names. Refuses a name replaced by a link meanwhile.
    fn open<'n>(&self, names: impl Iterator<Item = &'n OsString>) -> io::Result<OwnedFd> {
        let path: PathBuf = names.collect();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(self.root.as_fd(), path, flags, Mode::empty(), resolve)?)
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use rustix::fs::CWD;

    use super::*;

    struct Root {
        dir: tempfile::TempDir,
        fd: OwnedFd,
    }

    impl Root {
        fn new() -> Root {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("root")).unwrap();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(CWD, dir.path().join("root"), flags, Mode::empty()).unwrap();
            Root { dir, fd }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.dir.path().join("root").join(path)
        }

        fn link(&self, path: &str, target: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            symlink(target, self.at(path)).unwrap();
        }

        fn make(&self, path: &str, kind: Kind) -> io::Result<PathBuf> {
            make(&self.fd, Path::new(path), kind).map(|place| place.path)
        }
    }

    #[test]
    fn what_is_missing_is_made() {
        let root = Root::new();
        assert_eq!(root.make("/a/b/c", Kind::Directory).unwrap(), Path::new("/a/b/c"));
        assert!(root.at("a/b/c").is_dir());
        root.make("/a/d/file", Kind::File).unwrap();
        assert!(root.at("a/d/file").is_file());
        assert_eq!(root.make("/a/./x/../b//c/", Kind::Directory).unwrap(), Path::new("/a/b/c"));
    }

    #[test]
    fn a_place_knows_whether_it_was_missing() {
        let root = Root::new();
        fs::create_dir_all(root.at("old/below")).unwrap();
        root.link("to-old", "/old");
        root.link("to-nothing", "new/target");
        let made = |path| make(&root.fd, Path::new(path), Kind::Directory).unwrap().made;
        assert!(!made("/old") && !made("/old/below") && !made("/to-old/below") && !made("/new/../old"));
        assert!(made("/old/new") && made("/to-nothing") && !made("/to-nothing") && made("/a/b"));
    }

    #[test]
    fn a_link_to_nothing_has_its_target_made() {
        let root = Root::new();
        root.link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf");
        let place = root.make("/etc/resolv.conf", Kind::File).unwrap();
        assert_eq!(place, Path::new("/run/systemd/resolve/stub-resolv.conf"));
        assert!(root.at("run/systemd/resolve/stub-resolv.conf").is_file());
        root.link("var/run", "/run2");
        assert_eq!(root.make("/var/run/secrets", Kind::Directory).unwrap(), Path::new("/run2/secrets"));
    }

    #[test]
    fn no_link_leads_out_of_the_root() {
        let root = Root::new();
        fs::create_dir(root.dir.path().join("outside")).unwrap();
        root.link("up", "../../../../outside");
        assert_eq!(root.make("/up/below", Kind::Directory).unwrap(), Path::new("/outside/below"));
        assert!(root.at("outside/below").is_dir());
        assert!(!root.dir.path().join("outside/below").exists());
        assert_eq!(root.make("/../../x", Kind::Directory).unwrap(), Path::new("/x"));
    }

    #[test]
    fn a_loop_ends() {
        let root = Root::new();
        root.link("a", "b");
        root.link("b", "/a");
        root.link("self", "self/x");
        for path in ["/a", "/self"] {
            assert_eq!(root.make(path, Kind::Directory).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        }
    }

    #[test]
    fn a_file_is_no_directory_and_a_directory_no_file() {
        let root = Root::new();
        fs::write(root.at("file"), "").unwrap();
        fs::create_dir(root.at("dir")).unwrap();
        root.link("to-file", "file");
        let error = |path, kind| root.make(path, kind).unwrap_err().kind();
        assert_eq!(error("/file", Kind::Directory), io::ErrorKind::NotADirectory);
        assert_eq!(error("/to-file", Kind::Directory), io::ErrorKind::NotADirectory);
        assert_eq!(error("/file/below", Kind::Directory), io::ErrorKind::NotADirectory);
        assert_eq!(error("/dir", Kind::File), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn an_ordinary_place_has_no_links() {
        let root = Root::new();
        fs::create_dir(root.at("real")).unwrap();
        fs::write(root.at("file"), "").unwrap();
        root.link("link", "real");
        let ordinary = |path: &str| is_ordinary(&root.fd, Path::new(path)).unwrap();
        assert!(ordinary("/real") && ordinary("/nothing") && ordinary("/real/nothing"));
        assert!(!ordinary("/link") && !ordinary("/file") && !ordinary("/link/below"));
    }

    proptest! {
        #[test]
        fn no_tree_of_links_leads_out_or_hangs(
            links in proptest::collection::vec(("[a-c]{1}(/[a-c]){0,2}", "(/|\\.\\./){0,3}[a-c](/[a-c.]{1,2}){0,3}"), 0..6),
            path in "(/[a-c.]{1,2}){1,5}",
        ) {
            let root = Root::new();
            for (at, target) in &links {
                // The tree itself is made below the root, and through no link made before.
                let mut above = Path::new(at).ancestors().skip(1);
                if above.any(|above| root.at(above.to_str().unwrap()).is_symlink()) {
                    continue;
                }
                let at = root.at(at);
                if at.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) {
                    let _ = symlink(target, at);
                }
            }
            if let Ok(place) = root.make(&path, Kind::Directory) {
                // Without links, and below the root.
                prop_assert!(root.dir.path().join("root").join(place.strip_prefix("/").unwrap()).is_dir());
            }
            let beside: Vec<_> = fs::read_dir(root.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            prop_assert_eq!(beside, ["root"]);
        }
    }
}
