//! The node's root directory, as seen from a container. Every path is resolved inside it: a symbolic link
//! leads to its target on the node, never into the container. Files are replaced as a whole, so a process
//! with the old one open keeps it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Bytes copied at a time. A chunk with only zeros becomes a hole.
const PIECE_BYTES: usize = 64 << 10;

/// Most names read from a directory. The longest such directory is `/proc`, with a few ten thousand
/// processes.
const NAMES_MAX: usize = 1 << 20;

/// Depth of directories to remove. Podvisor's own are a few levels deep.
const DEPTH_MAX: u32 = 64;

/// Suffix of a file during its writing. A killed writer's leftover is replaced by the next one.
const NEW: &str = ".podvisor-new";

/// The root directory of a node.
#[derive(Debug)]
pub struct HostRoot {
    directory: OwnedFd,
    path: PathBuf,
    #[cfg(test)]
    pub(crate) gate: crate::tests::Gate,
}

/// A failed operation on a file or directory of the node.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {} on the node", path.display())]
pub struct RootError {
    act: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The file system at a path of the node, or at its nearest existing parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) free_bytes: u64,
    pub(crate) read_only: bool,
}

impl RootError {
    fn new(act: &'static str, path: &Path, source: impl Into<io::Error>) -> RootError {
        RootError { act, path: path.to_owned(), source: source.into() }
    }

    /// The kind of the kernel's refusal.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl HostRoot {
    /// Opens the directory at `path`, the mount point of the node's root.
    ///
    /// # Errors
    /// The path is no directory, or cannot be opened.
    pub fn open(path: &Path) -> Result<HostRoot, RootError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| RootError::new("open the root", path, errno))?;
        Ok(HostRoot {
            directory,
            path: path.to_owned(),
            #[cfg(test)]
            gate: crate::tests::Gate::default(),
        })
    }

    /// The root's mount point in the container.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Called before each change of the node. Tests fail one there, and all later ones, as after a kill.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have a gate here")
    )]
    fn pass(&self, act: &'static str, path: &Path) -> Result<(), RootError> {
        #[cfg(test)]
        self.gate.pass().map_err(|error| RootError::new(act, path, error))?;
        let _ = (act, path);
        Ok(())
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        // An empty path would be an error, and the root's own is one.
        let inside = path.strip_prefix("/").unwrap_or(path);
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.directory, inside, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Returns the type of a path, following links, or `None` if nothing is there.
    pub(crate) fn kind(&self, path: &Path) -> Result<Option<FileType>, RootError> {
        let failed = |errno| RootError::new("look at", path, errno);
        match self.open_at(path, OFlags::PATH) {
            Ok(fd) => Ok(Some(FileType::from_raw_mode(rustix::fs::fstat(&fd).map_err(failed)?.st_mode))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether a path is itself a symbolic link, wherever it leads.
    pub(crate) fn is_link(&self, path: &Path) -> Result<bool, RootError> {
        Ok(self.entry(path)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink))
    }

    /// Returns the status of a path itself, a link not followed.
    fn entry(&self, path: &Path) -> Result<Option<Stat>, RootError> {
        let failed = |errno| RootError::new("look at", path, errno);
        let Some((parent, name)) = self.parent(path).map_err(failed)? else { return Ok(None) };
        match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Opens a path's directory, `None` if it is missing.
    fn parent<'a>(&self, path: &'a Path) -> Result<Option<(OwnedFd, &'a OsStr)>, Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
        match self.open_at(parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(parent) => Ok(Some((parent, name))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a regular file, `None` if nothing is there.
    pub(crate) fn file(&self, path: &Path) -> Result<Option<File>, RootError> {
        let failed = |error| RootError::new("read", path, error);
        // Without NONBLOCK a named pipe would hold the caller.
        let file = match self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        };
        // Those of /proc are regular files, too.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("no regular file")));
        }
        Ok(Some(file))
    }

    /// Reads a text of at most `bytes_max` bytes, `None` if there is no file. Invalid UTF-8 is replaced.
    pub(crate) fn read(&self, path: &Path, bytes_max: u64) -> Result<Option<String>, RootError> {
        let failed = |error| RootError::new("read", path, error);
        let Some(file) = self.file(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > bytes_max {
            return Err(failed(io::Error::other(format!("longer than {bytes_max} bytes"))));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Lists the names in a directory, none if it is missing.
    pub(crate) fn names(&self, path: &Path) -> Result<Vec<String>, RootError> {
        let failed = |errno| RootError::new("list", path, errno);
        let fd = match self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(failed(errno)),
        };
        names_in(&fd).map_err(failed)
    }

    /// Returns the space of the file system at a path, or of its future file system if the path is missing.
    pub(crate) fn space(&self, path: &Path) -> Result<Space, RootError> {
        let failed = |errno| RootError::new("look at the file system of", path, errno);
        for place in path.ancestors() {
            match self.open_at(place, OFlags::PATH) {
                Ok(fd) => {
                    let found = rustix::fs::fstatvfs(&fd).map_err(failed)?;
                    let read_only = found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
                    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
                    return Ok(Space { free_bytes, read_only });
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::NOENT))
    }

    /// Makes a directory and its parents, mode 755, if they are missing.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), RootError> {
        let failed = |errno| RootError::new("make the directory", path, errno);
        let mut all: Vec<&Path> = path.ancestors().collect();
        all.reverse();
        for place in all.into_iter().skip(1) {
            match self.open_at(place, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
            let (parent, name) = self.parent(place).map_err(failed)?.ok_or_else(|| failed(Errno::NOENT))?;
            self.pass("make the directory", place)?;
            let mode = Mode::from_raw_mode(0o755);
            rustix::fs::mkdirat(&parent, name, mode).map_err(failed)?;
            // Independent of the container's umask.
            rustix::fs::chmodat(&parent, name, mode, AtFlags::empty()).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes a text as a file of mode 644, as [`HostRoot::put`] does.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<(), RootError> {
        self.put(path, 0o644, &mut text.as_bytes())
    }

    /// Replaces a file as a whole: after a kill there is the old one or the new one. A link in its place is
    /// replaced, not followed. Missing directories are created.
    pub(crate) fn put(&self, path: &Path, mode: u32, content: &mut dyn Read) -> Result<(), RootError> {
        let failed = |error: io::Error| RootError::new("write", path, error);
        if let Some(above) = path.parent() {
            self.make_directory(above)?;
        }
        let found = self.parent(path).map_err(|errno| failed(errno.into()))?;
        let (parent, name) = found.ok_or_else(|| failed(Errno::NOENT.into()))?;
        let mut new = OsStr::new(".").to_owned();
        new.push(name);
        new.push(NEW);
        self.pass("write", path)?;
        let written = fill(&parent, &new, mode, content).and_then(|()| {
            #[cfg(test)]
            self.gate.pass()?;
            rustix::fs::renameat(&parent, &new, &parent, name)?;
            Ok(rustix::fs::fsync(&parent)?)
        });
        written.map_err(|error| {
            // An incomplete file would waste space on a possibly full disk.
            let _ = rustix::fs::unlinkat(&parent, &new, AtFlags::empty());
            failed(error)
        })
    }

    /// Removes a file, or a link itself; returns whether there was one.
    pub(crate) fn remove(&self, path: &Path) -> Result<bool, RootError> {
        let failed = |errno| RootError::new("remove", path, errno);
        let Some((parent, name)) = self.parent(path).map_err(failed)? else { return Ok(false) };
        self.pass("remove", path)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Removes a directory if it exists and is empty.
    pub(crate) fn remove_if_empty(&self, path: &Path) -> Result<(), RootError> {
        let failed = |errno| RootError::new("remove", path, errno);
        let Some((parent, name)) = self.parent(path).map_err(failed)? else { return Ok(()) };
        self.pass("remove", path)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::BUSY) => {
                Ok(())
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Empties a directory and removes it. Links in it are removed without being followed, and a mount below
    /// it is an error. If the path is a link, or has a disk of its own, it stays.
    pub(crate) fn remove_tree(&self, path: &Path) -> Result<(), RootError> {
        let failed = |errno| RootError::new("empty", path, errno);
        let is_directory = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !self.entry(path)?.is_some_and(is_directory) {
            return Ok(());
        }
        let directory = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        self.pass("empty", path)?;
        empty(&directory, DEPTH_MAX).map_err(failed)?;
        self.remove_if_empty(path)
    }

    /// Opens a lock file, and creates it if it is missing.
    pub(crate) fn lock_file(&self, path: &Path) -> Result<File, RootError> {
        let failed = |errno| RootError::new("open", path, errno);
        if let Some(above) = path.parent() {
            self.make_directory(above)?;
        }
        let (parent, name) = self.parent(path).map_err(failed)?.ok_or_else(|| failed(Errno::NOENT))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        Ok(File::from(fd))
    }
}

/// Writes a new file with all of the content, on the disk when it returns.
fn fill(parent: &OwnedFd, name: &OsStr, mode: u32, content: &mut dyn Read) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
    copy_with_holes(content, &mut file)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_all()
}

fn copy_with_holes(from: &mut dyn Read, to: &mut File) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let mut filled = 0;
        while filled < piece.len() {
            match from.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            return to.set_len(at);
        }
        if piece[..filled].iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(at))?;
            to.write_all(&piece[..filled])?;
        }
        at += filled as u64;
    }
}

fn names_in(directory: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
        if names.len() > NAMES_MAX {
            return Err(Errno::TOOBIG);
        }
    }
    Ok(names)
}

/// Removes the content of a directory, only on its own file system and mount.
fn empty(directory: &OwnedFd, depth: u32) -> Result<(), Errno> {
    if depth == 0 {
        return Err(Errno::TOOBIG);
    }
    let entries: Vec<_> = rustix::fs::Dir::read_from(directory)?.collect::<Result<_, _>>()?;
    for entry in entries {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let below = rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)?;
        empty(&below, depth - 1)?;
        rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}
