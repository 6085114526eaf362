//! One connection: connects to the node's socket, and takes the container's end. `runtime-ways` carries the
//! bytes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// Most connections at once: the same limit as a VMM's for the programs of its guest.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// How long a server with a full queue may take to accept the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts to connect to such a server.
const PAUSE: Duration = Duration::from_millis(50);

/// Connects to the socket at `path`. Links are not followed: a container with write access to a directory on
/// the way could use one to redirect the connection.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let socket = openat2(CWD, path, flags, Mode::empty(), resolve)?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(Errno::NOTSOCK.into());
    }
    // The same file as checked above.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
    let deadline = Instant::now() + CONNECT_WITHIN;
    loop {
        match UnixStream::connect(&opened).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// The container's end of a connection.
pub(crate) fn container_end(stream: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_is_connected_to_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let socket = dir.join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (connected, accepted) = tokio::join!(connect(&socket), listener.accept());
        connected.unwrap();
        accepted.unwrap();
        symlink(&socket, dir.join("link.sock")).unwrap();
        symlink(&dir, dir.join("link")).unwrap();
        for link in ["link.sock", "link/a.sock"] {
            let errno = connect(&dir.join(link)).await.unwrap_err().raw_os_error();
            assert_eq!(errno, Some(Errno::LOOP.raw_os_error()), "{link}");
        }
        std::fs::write(dir.join("file"), "").unwrap();
        for (name, errno) in [("file", Errno::NOTSOCK), ("none", Errno::NOENT)] {
            let found = connect(&dir.join(name)).await.unwrap_err().raw_os_error();
            assert_eq!(found, Some(errno.raw_os_error()), "{name}");
        }
        drop(listener);
        let refused = connect(&socket).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_socket_of_datagrams_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("datagrams");
        let _socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let errno = connect(&path).await.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(Errno::PROTOTYPE.raw_os_error()));
    }
}
