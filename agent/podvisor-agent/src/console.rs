//! Receives a terminal from its container: its master side arrives as a descriptor on a unix socket.
//! [`crate::streams`] moves the terminal's bytes afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::pty::OpenptFlags;
use tokio::net::UnixListener;

/// Timeout for the terminal. The process sends it before the builder's report, so it has already arrived.
const ARRIVE: Duration = Duration::from_secs(5);

/// Both sides of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    /// The side of the container's programs.
    pub(crate) other_side: OwnedFd,
}

/// Socket for one terminal. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ConsoleSocket {
    pub(crate) fn bind(path: PathBuf) -> io::Result<ConsoleSocket> {
        Ok(ConsoleSocket { listener: UnixListener::bind(&path)?, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Receives the master side, opens the other side, and gives it to the process's user. It keeps the group
    /// of all terminals, because programs write to others' terminals through it.
    pub(crate) async fn receive(self, uid: u32) -> io::Result<Terminal> {
        let arrival = async {
            let (connection, _) = self.listener.accept().await?;
            loop {
                connection.readable().await?;
                let received = connection.try_io(tokio::io::Interest::READABLE, || {
                    agent_container::launch::receive_fds(&connection)
                });
                match received {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
            }
        };
        let fds = tokio::time::timeout(ARRIVE, arrival).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let master = fds.and_then(|mut fds| fds.pop()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let other_side = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        std::os::unix::fs::fchown(&other_side, Some(uid), None)?;
        Ok(Terminal { master, other_side })
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        // The container's removal removes the whole directory.
        let _ = std::fs::remove_file(&self.path);
    }
}
