//! Compares a bound place with a path of the host: is it the same file, with the same mounts below? Only then
//! may another container of the pod use the place, too. Nothing here changes a mount.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, openat};
use rustix::io::Errno;

use crate::bind::Access;
use crate::directory::open_directory;
use crate::tree;

/// What a source and a bound place with the same file have below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// No further mounts.
    Nothing,
    /// The same mounts.
    Mounts,
}

/// Compares `source` with the place `<shared>/<container>/<number>`, as the process `viewer` has it: the one
/// with `shared` as its root. `None` if they differ, or if nothing is bound there. The caller makes sure that
/// `viewer` has not ended meanwhile. `access` is that of the place: what it does not forbid is compared, too.
///
/// # Errors
/// The source cannot be opened, or the kernel refuses.
pub fn compare(
    viewer: u32,
    shared: &Path,
    (container, number): (&str, usize),
    source: &Path,
    access: Access,
) -> io::Result<Option<Below>> {
    let root = open_directory(CWD, format!("/proc/{viewer}/root/."))?;
    if key(&root)? != key(&open_directory(CWD, shared)?)? {
        return Ok(None);
    }
    let Some(bound) = open_bound(&root, container, number)? else { return Ok(None) };
    let mut source = tree::open(source)?;
    let is_directory = FileType::from_raw_mode(fstat(&source)?.st_mode).is_dir();
    if is_directory {
        source = tree::open_directory(Path::new(&link_of(&source)))?;
    }
    if key(&bound)? != key(&source)? {
        return Ok(None);
    }
    // A clone has the flags of its moment: the node may have mounted the source for reading, or for writing
    // since.
    if access == Access::ReadWrite && is_read_only(&bound)? != is_read_only(&source)? {
        return Ok(None);
    }
    if !is_directory {
        return Ok(Some(Below::Nothing));
    }
    let (here, there) = (table("thread-self")?, table(&viewer.to_string())?);
    let place = Path::new("/").join(container).join(number.to_string());
    let mut ours = mounts_below(&here, &fs::read_link(link_of(&source))?);
    let mut theirs = mounts_below(&there, &place);
    if access == Access::ReadOnlyRecursive {
        ours.iter_mut().chain(&mut theirs).for_each(|mount| mount.access = "");
    }
    Ok((ours == theirs).then_some(if ours.is_empty() { Below::Nothing } else { Below::Mounts }))
}

/// Opens a bound place. No link is followed: a guest may write there.
fn open_bound(root: &OwnedFd, container: &str, number: usize) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open_directory(root, container)
        .and_then(|directory| openat(&directory, number.to_string(), flags, Mode::empty()));
    match opened {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn is_read_only(file: &OwnedFd) -> io::Result<bool> {
    Ok(fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Device and inode number: equal for the same file alone.
fn key(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

fn link_of(file: &OwnedFd) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}

fn table(process: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(format!("/proc/{process}/mountinfo"))?).into_owned())
}

/// A mount below a path.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mounted<'a> {
    /// The path below.
    point: &'a str,
    device: &'a str,
    /// Its root in the file system.
    root: &'a str,
    /// `ro` or `rw`, of the mount alone.
    access: &'a str,
}

/// The mounts below a path. A line is "id parent major:minor root point options …" (proc_pid_mountinfo(5)).
fn mounts_below<'a>(table: &'a str, top: &Path) -> Vec<Mounted<'a>> {
    let top = escaped(&top.to_string_lossy());
    let top = top.trim_end_matches('/');
    let below = |line: &'a str| {
        let mut fields = line.split(' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        let point = point.strip_prefix(top).filter(|rest| rest.len() > 1 && rest.starts_with('/'))?;
        let access = fields.next()?.split(',').next()?;
        Some(Mounted { point, device, root, access })
    };
    let mut found: Vec<_> = table.lines().filter_map(below).collect();
    found.sort_unstable();
    found
}

/// A path as the table has it.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda rw
22 21 0:5 / /a\\040b rw - tmpfs none rw
23 22 0:6 /x /a\\040b/c rw - tmpfs none rw
24 22 0:7 / /a\\040b/b ro,nodev - tmpfs none rw
25 21 0:7 / /a\\040bc rw - tmpfs none rw";

    #[test]
    fn mounts_below_a_path_are_found_by_whole_names() {
        let below = mounts_below(TABLE, Path::new("/a b"));
        let mounted = |point, device, root, access| Mounted { point, device, root, access };
        assert_eq!(below, [mounted("/b", "0:7", "/", "ro"), mounted("/c", "0:6", "/x", "rw")]);
        assert_eq!(mounts_below(TABLE, Path::new("/a b/c")), []);
        assert_eq!(mounts_below(TABLE, Path::new("/")).len(), 4);
    }
}
