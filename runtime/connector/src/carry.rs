//! One connection: connects to the node's socket, and copies both ways. Each side's half-close is passed on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use runtime_ways as ways;

/// Most connections at once: the same limit as a VMM's for the programs of its guest.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// How long a server with a full queue may take to accept the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts to connect to such a server.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a half-closed connection is checked after the container has finished sending. A closed peer
/// reads no answer.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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

/// Copies in both directions, each to its own end. Once the container has finished sending, the other
/// direction lasts only as long as the container keeps its end open.
pub(crate) async fn both_ways(container: UnixStream, server: UnixStream) -> io::Result<()> {
    let look = container.as_fd().try_clone_to_owned()?;
    let (mut from_container, mut to_container) = container.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (said, last_word) = oneshot::channel();
    // Neither takes its halves: they live until both ways have ended.
    let question = async {
        ways::copy(&mut from_container, &mut to_server).await?;
        let _ = said.send(());
        Ok(())
    };
    let answer = async {
        tokio::select! {
            answered = ways::copy(&mut from_server, &mut to_container) => answered,
            () = async { if last_word.await.is_ok() { gone(look.as_fd()).await } else { std::future::pending().await } } => Ok(()),
        }
    };
    ways::both(question, answer).await
}

/// Returns once the container's end is closed altogether.
async fn gone(container: BorrowedFd<'_>) {
    loop {
        let mut look = [PollFd::new(&container, PollFlags::empty())];
        // A poll always reports hang-ups. This one does not wait.
        if poll(&mut look, Some(&Timespec::default())).is_err()
            || look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
        {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

    #[tokio::test]
    async fn each_side_s_half_close_is_passed_on() {
        let ((mut program, container), (ours, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let carrying = tokio::spawn(both_ways(container, ours));
        let question = vec![b'q'; 1 << 20];
        let asking = async {
            program.write_all(&question).await.unwrap();
            program.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let ((), length) = tokio::join!(asking, async { server.read_to_end(&mut heard).await.unwrap() });
        assert_eq!(length, question.len());
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        carrying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_answer_of_a_server_that_takes_no_question_is_carried() {
        let ((mut program, container), (ours, server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        // Its server takes no question, and answers a little later.
        let server = server.into_std().unwrap();
        server.shutdown(std::net::Shutdown::Read).unwrap();
        let mut server = UnixStream::from_std(server).unwrap();
        program.write_all(b"question").await.unwrap();
        let carrying = tokio::spawn(both_ways(container, ours));
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        server.write_all(b"too large").await.unwrap();
        drop(server);
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too large");
        carrying.await.unwrap().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_a_container_that_is_gone_is_let_go() {
        let ((program, container), (ours, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let carrying = tokio::spawn(both_ways(container, ours));
        drop(program);
        carrying.await.unwrap().unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }
}
