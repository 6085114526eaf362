//! The two ways of a connection that is carried from one socket to another. Each has its own end, and a
//! failure of one must not drop bytes of the other. Used on both sides of a VM; knows no protocol.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 8 * 1024;

/// How long one way may go on after a failure of the other, as with containerd's port-forward.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Interval of checks whether a client is gone after its half-close. A gone client takes no answer.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Carries bytes both ways, each to its own end.
///
/// # Errors
/// The first failure of a way. The other one has ended, too, or had some time for it.
pub async fn carry<A, B>(one: A, other: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut from_one, mut to_one) = tokio::io::split(one);
    let (mut from_other, mut to_other) = tokio::io::split(other);
    both(copy(&mut from_one, &mut to_other), copy(&mut from_other, &mut to_one)).await
}

/// Carries a program's connection both ways, each to its own end. After the program's half-close, the way
/// back lasts only as long as the program keeps its end open. Otherwise a server with an endless answer would
/// hold a place for no reader.
///
/// # Errors
/// As [`carry`].
pub async fn carry_for<S>(program: UnixStream, server: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let look = program.as_fd().try_clone_to_owned()?;
    carry_until(program, server, || has_hung_up(look.as_fd())).await
}

/// Carries a connection of the other side of a VM both ways, like [`carry_for`]. The connection is a stream
/// socket. A socket between host and guest reports no hang-up while one's own end is open.
///
/// # Errors
/// As [`carry`].
pub async fn carry_across<A, S>(other_side: A, server: S) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + AsFd,
    S: AsyncRead + AsyncWrite,
{
    let look = other_side.as_fd().try_clone_to_owned()?;
    carry_until(other_side, server, || takes_nothing_more(look.as_fd())).await
}

/// Carries bytes both ways until their ends. After the client's last byte, the way back also ends once the
/// client is gone.
async fn carry_until<A, S>(client: A, server: S, is_gone: impl Fn() -> bool) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (said, last_word) = oneshot::channel();
    // Neither takes its halves: they live until both ways have ended.
    let question = async {
        copy(&mut from_client, &mut to_server).await?;
        let _ = said.send(());
        Ok(())
    };
    let gone = async {
        last_word.await.map_err(drop)?;
        while !is_gone() {
            sleep(LOOK_EVERY).await;
        }
        Ok::<_, ()>(())
    };
    let answer = async {
        tokio::select! {
            answered = copy(&mut from_server, &mut to_client) => answered,
            Ok(()) = gone => Ok(()),
        }
    };
    both(question, answer).await
}

/// Returns true if the program's end is fully closed.
fn has_hung_up(program: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::new(&program, PollFlags::empty())];
    // Hang-ups are always reported, and the poll does not wait.
    poll(&mut look, Some(&Timespec::default())).is_err()
        || look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Returns true if the other end reads no more. The kernel checks this first, also for a send of no bytes
/// (`vsock_connectible_sendmsg`, net/vmw_vsock/af_vsock.c; `unix_stream_sendmsg`, net/unix/af_unix.c).
fn takes_nothing_more(socket: BorrowedFd<'_>) -> bool {
    match send(socket, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Copies bytes to their end, and passes the end on. A failure is an end, too, after all bytes before it.
async fn copy<R, W>(from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let copied = copy_all(from, to).await;
    copied.and(to.shutdown().await)
}

// tokio's own copy drops bytes in transit when a read fails.
async fn copy_all<R, W>(from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk).await? {
            0 => return Ok(()),
            count => to.write_all(&chunk[..count]).await?,
        }
    }
}

/// Waits for the ends of both ways. A server may answer and close without reading the question, so a failure
/// of one way leaves the other some time.
async fn both<A, B>(one: A, other: B) -> io::Result<()>
where
    A: Future<Output = io::Result<()>>,
    B: Future<Output = io::Result<()>>,
{
    tokio::pin!(one, other);
    tokio::select! {
        ended = &mut one => rest(ended, other).await,
        ended = &mut other => rest(ended, one).await,
    }
}

async fn rest(ended: io::Result<()>, other: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    match ended {
        Ok(()) => other.await,
        Err(error) => {
            let _ = timeout(AFTER_FAILURE, other).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_carried_though_its_server_takes_no_question() {
        let ((mut client, ours), (theirs, mut server)) = (duplex(64), duplex(64));
        server.write_all(b"too large").await.unwrap();
        drop(server);
        client.write_all(b"question").await.unwrap();
        let carrying = tokio::spawn(async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (tokio::io::split(ours), tokio::io::split(theirs));
            // In this order: the question fails first.
            let question = copy(&mut from_client, &mut to_server).await;
            both(async { question }, copy(&mut from_server, &mut to_client)).await
        });
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too large");
        carrying.await.unwrap().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_without_an_end_ends_a_little_after_a_failure_of_the_other() {
        let broken = || async { Err(io::ErrorKind::BrokenPipe.into()) };
        both(broken(), pending()).await.unwrap_err();
        both(pending(), broken()).await.unwrap_err();
    }

    #[tokio::test]
    async fn bytes_before_a_failure_are_passed_on_and_then_the_end() {
        /// Fails after its bytes.
        struct Broken;

        impl AsyncRead for Broken {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }

        let (mut client, mut ours) = duplex(2);
        let copying = tokio::spawn(async move { copy(&mut (&b"answer"[..]).chain(Broken), &mut ours).await });
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        copying.await.unwrap().unwrap_err();
    }

    #[tokio::test]
    async fn each_side_s_half_close_is_passed_on() {
        let ((mut program, container), (ours, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let carrying = tokio::spawn(carry_for(container, ours));
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
        let carrying = tokio::spawn(carry_for(container, ours));
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
    async fn a_server_that_never_answers_a_silent_program_that_is_gone_is_let_go() {
        let ((program, container), (ours, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let carrying = tokio::spawn(carry_for(container, ours));
        drop(program);
        carrying.await.unwrap().unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_let_go_when_the_other_side_is_gone() {
        let ((mut client, ours), (theirs, mut server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let carrying = tokio::spawn(carry_across(ours, theirs));
        client.write_all(b"question").await.unwrap();
        // A half-close alone leaves the way back open, however long the answer takes.
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "question");
        sleep(10 * LOOK_EVERY).await;
        server.write_all(b"late").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        drop(client);
        carrying.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_a_program_that_is_gone_is_let_go() {
        let (mut program, ours) = UnixStream::pair().unwrap();
        let (host, mut server) = tokio::io::duplex(64);
        let carrying = tokio::spawn(carry_for(ours, host));
        program.write_all(b"question").await.unwrap();
        drop(program);
        carrying.await.unwrap().unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "question");
    }
}
