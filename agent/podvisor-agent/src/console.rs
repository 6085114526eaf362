//! A terminal's way from the container that makes it to the agent: a unix socket on which the master side arrives as
//! a descriptor. [`crate::streams`] moves the terminal's bytes afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::pty::OpenptFlags;
use tokio::net::UnixListener;

/// How long the terminal may take. The builder sends it before it reports, so it is there already.
const ARRIVE: Duration = Duration::from_secs(5);

/// A socket that one terminal comes through. Dropping it removes the file.
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

    /// Receives the master side, and gives the other side to the process's user. Its group stays that of all terminals, as which
    /// programs write to others' terminals.
    pub(crate) async fn receive(self, uid: u32) -> io::Result<OwnedFd> {
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
        Ok(master)
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        // The container's removal takes the whole directory.
        let _ = std::fs::remove_file(&self.path);
    }
}
