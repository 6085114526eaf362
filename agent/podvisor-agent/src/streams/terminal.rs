//! Holds a terminal's other side while its process lives. The master side of a terminal that nobody else has
//! open answers with EIO, but a program may open the terminal again: an init system between two logins, or a
//! script that writes to `/dev/console`. A held side gets its hang-ups and sends none, so sessions end as
//! before.

use std::io;
use std::os::fd::OwnedFd;

use tokio::sync::watch;

use crate::streams::pipe_end::PipeEnd;

/// Holds `other_side` until `ended` turns true. From then on the stream ends with the last program that has
/// the terminal open.
pub(crate) fn hold(other_side: OwnedFd, mut ended: watch::Receiver<bool>) -> io::Result<()> {
    // A close may wait for a program that changes the terminal.
    let held = PipeEnd::new(other_side)?;
    tokio::spawn(async move {
        // The sender is dropped with the process, so this is an end, too.
        let _ = ended.wait_for(|ended| *ended).await;
        drop(held);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::time::Duration;

    use rustix::pty::OpenptFlags;
    use tokio::io::{AsyncReadExt, duplex};
    use tokio::net::UnixStream;

    use super::*;
    use crate::streams::direct::Direct;
    use crate::streams::output::Output;

    /// Opens the other side of a terminal once more.
    fn open(master: &OwnedFd) -> OwnedFd {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        rustix::pty::ioctl_tiocgptpeer(master, flags).unwrap()
    }

    /// Opens, writes and closes a held terminal twice, and then ends its process. `host` reads its stream.
    async fn used_twice(
        mut host: impl tokio::io::AsyncRead + Unpin,
        master: OwnedFd,
        end: watch::Sender<bool>,
    ) {
        for word in ["one", "two"] {
            File::from(open(&master)).write_all(word.as_bytes()).unwrap();
            let mut heard = [0; 3];
            host.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, word.as_bytes());
            // The stream reads the closed terminal meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        end.send(true).unwrap();
        assert_eq!(host.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_containers_terminal_that_all_have_closed_is_open_to_the_next_until_its_end() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let (end, ended) = watch::channel(false);
        hold(pair.slave, ended.clone()).unwrap();
        let output = Output::start(pair.master.try_clone().unwrap(), ended).unwrap();
        let (host, connection) = duplex(64);
        tokio::spawn(async move { output.serve(connection, 0).await });
        used_twice(host, pair.master, end).await;
    }

    #[tokio::test]
    async fn a_commands_terminal_that_all_have_closed_is_open_to_the_next_until_its_end() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let (end, ended) = watch::channel(false);
        hold(pair.slave, ended.clone()).unwrap();
        let stream = Direct::new(pair.master.try_clone().unwrap(), ended).unwrap();
        let (host, connection) = UnixStream::pair().unwrap();
        tokio::spawn(stream.take(0).unwrap().serve(connection.into_std().unwrap().into()));
        used_twice(host, pair.master, end).await;
    }
}
