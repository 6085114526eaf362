//! Finds the container's mounts that are sockets of a handler's list, or directories with such a socket.
//! Files are identified by device and inode, not by their names: storage plugins bind a directory of sockets
//! to a place of their own.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A socket of the list behind a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundSocket {
    /// The number of the mount.
    pub(crate) mount: usize,
    /// The socket's path in the mount; `None` if the mount is the socket.
    pub(crate) sub_path: Option<PathBuf>,
    /// The socket on the node, without links as far as there is something.
    pub(crate) path: PathBuf,
}

/// A file as the kernel knows it.
type Identity = (u64, u64);

/// Finds the sockets behind these mounts, given with their numbers. Links are followed, as the node sees
/// them. A listed socket need not exist, nor a mount.
pub(crate) fn find(allowed: &[PathBuf], mounts: &[(usize, PathBuf)]) -> Vec<FoundSocket> {
    let sockets: Vec<PathBuf> = allowed.iter().filter_map(|path| real_path(path)).collect();
    let mut found = Vec::new();
    for (mount, host_path) in mounts {
        let Ok(there) = fs::metadata(host_path) else { continue };
        let of_mount = |path: &PathBuf| {
            let sub_path = place(&there, path)?;
            Some(FoundSocket { mount: *mount, sub_path, path: path.clone() })
        };
        found.extend(sockets.iter().filter_map(of_mount));
    }
    // Two names of the list may lead to one socket.
    let mut known: Vec<FoundSocket> = Vec::new();
    found.retain(|socket| {
        let new = !known.contains(socket);
        known.push(socket.clone());
        new
    });
    found
}

/// Whether the mounted file is the socket (`Some(None)`), or a directory above it, with the path from there.
fn place(mounted: &Metadata, socket: &Path) -> Option<Option<PathBuf>> {
    let mounted_is =
        |path: &Path| fs::metadata(path).is_ok_and(|there| identity(&there) == identity(mounted));
    if mounted.file_type().is_socket() {
        return mounted_is(socket).then_some(None);
    }
    if !mounted.is_dir() {
        return None;
    }
    let above = socket.ancestors().skip(1).find(|directory| mounted_is(directory))?;
    socket.strip_prefix(above).ok().map(|sub_path| Some(sub_path.to_owned()))
}

/// The path without links, as far as it exists: a missing part cannot be a link. `None` if this cannot be
/// determined.
fn real_path(path: &Path) -> Option<PathBuf> {
    for there in path.ancestors() {
        match fs::canonicalize(there) {
            Ok(real) if there == path => return Some(real),
            Ok(real) => return path.strip_prefix(there).ok().map(|rest| real.join(rest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    None
}

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Identifies a socket's file. It includes the time of the last change (ctime), because inode numbers are
/// reused.
pub(crate) type Made = (Identity, (i64, i64));

/// The socket at the path, if there is one.
pub(crate) fn made(path: &Path) -> Option<Made> {
    let there = fs::symlink_metadata(path).ok().filter(|there| there.file_type().is_socket())?;
    Some((identity(&there), (there.ctime(), there.ctime_nsec())))
}

/// The directory to watch for a socket: its own, or the nearest existing one above.
pub(crate) fn nearest_directory(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|directory| directory.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("run/spire/sockets")).unwrap();
        (dir, path)
    }

    fn found(mount: usize, sub_path: Option<&str>, path: PathBuf) -> FoundSocket {
        FoundSocket { mount, sub_path: sub_path.map(PathBuf::from), path }
    }

    #[test]
    fn a_mount_that_is_a_socket_of_the_list_is_found_by_any_of_its_names() {
        let (_dir, dir) = directory();
        let socket = dir.join("run/spire/sockets/agent.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let _other = UnixListener::bind(dir.join("run/other.sock")).unwrap();
        symlink(dir.join("run"), dir.join("var")).unwrap();
        fs::hard_link(&socket, dir.join("bound.sock")).unwrap();
        let mounts = [
            (0, socket.clone()),
            (1, dir.join("var/spire/sockets/agent.sock")),
            (2, dir.join("run/other.sock")),
            (3, dir.join("none.sock")),
            (4, dir.join("bound.sock")),
        ];
        let expected =
            [found(0, None, socket.clone()), found(1, None, socket.clone()), found(4, None, socket)];
        for allowed in ["run/spire/sockets/agent.sock", "var/spire/sockets/agent.sock"] {
            assert_eq!(find(&[dir.join(allowed)], &mounts), expected, "{allowed}");
        }
        assert_eq!(find(&[], &mounts), []);
    }

    #[test]
    fn a_directory_above_a_socket_of_the_list_is_found_whether_the_socket_is_there_or_not() {
        let (_dir, dir) = directory();
        let socket = dir.join("run/spire/sockets/agent.sock");
        let mounts = [(0, dir.join("run/spire/sockets")), (2, dir.join("run/spire")), (5, dir.join("run"))];
        let expected = [
            found(0, Some("agent.sock"), socket.clone()),
            found(2, Some("sockets/agent.sock"), socket.clone()),
            found(5, Some("spire/sockets/agent.sock"), socket.clone()),
        ];
        assert_eq!(find(std::slice::from_ref(&socket), &mounts), expected);
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(find(std::slice::from_ref(&socket), &mounts), expected);
        fs::create_dir(dir.join("elsewhere")).unwrap();
        assert_eq!(find(&[socket], &[(0, dir.join("elsewhere"))]), []);
    }

    #[test]
    fn a_directory_that_is_to_come_is_looked_for_from_the_nearest_one() {
        let (_dir, dir) = directory();
        let socket = dir.join("run/later/sockets/a.sock");
        let expected = [found(1, Some("later/sockets/a.sock"), socket.clone())];
        assert_eq!(find(std::slice::from_ref(&socket), &[(1, dir.join("run"))]), expected);
        assert_eq!(nearest_directory(&socket), Some(dir.join("run").as_path()));
        fs::create_dir_all(dir.join("run/later/sockets")).unwrap();
        assert_eq!(nearest_directory(&socket), socket.parent());
    }

    #[test]
    fn a_socket_that_was_made_anew_is_another_one() {
        let (_dir, dir) = directory();
        let socket = dir.join("a.sock");
        assert_eq!(made(&socket), None);
        let listener = UnixListener::bind(&socket).unwrap();
        let first = made(&socket).unwrap();
        assert_eq!(made(&socket), Some(first));
        fs::remove_file(&socket).unwrap();
        drop(listener);
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_ne!(made(&socket), Some(first));
        fs::write(dir.join("file"), "").unwrap();
        assert_eq!(made(&dir.join("file")), None);
    }
}
