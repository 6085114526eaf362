//! One connection of a program to a socket of the node: a stream to the host with the socket's token first,
//! and then bytes both ways. Each side's half-close is passed on. A program's credentials and descriptors
//! stay in the guest: they mean nothing to another kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto_agent::{HOST_SOCKET_TOKEN_BYTES, port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_vsock::{VMADDR_CID_HOST, VsockAddr, VsockStream};

use super::pace::Pace;
use runtime_ways as ways;

/// Timeout for the VMM's answer to a dial.
const DIAL: Duration = Duration::from_secs(10);

/// Interval of checks whether a program is gone after its half-close. A gone program takes no answer.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Secret of a container's socket. It identifies the socket to the host.
#[derive(Clone, Copy)]
pub(super) struct Token([u8; HOST_SOCKET_TOKEN_BYTES]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl TryFrom<&[u8]> for Token {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Token, Self::Error> {
        bytes.try_into().map(Token)
    }
}

/// Carries a program's connection until it ends. If the host refuses the stream, the program's connection is
/// closed.
pub(super) async fn carry(program: UnixStream, token: &Token, pace: &Pace) {
    let Some(_place) = pace.take().await else { return };
    if let Err(error) = dial_and_carry(program, token).await {
        failed(&error);
    }
}

async fn dial_and_carry(program: UnixStream, token: &Token) -> io::Result<()> {
    let dialling = VsockStream::connect(VsockAddr::new(VMADDR_CID_HOST, port::HOST_SOCKET));
    let mut host = tokio::time::timeout(DIAL, dialling).await??;
    host.write_all(&token.0).await?;
    both_ways(program, host).await
}

/// Carries bytes both ways, each to its own end. After the program's half-close, the way back lasts only as
/// long as the program keeps its end open. Otherwise a server with an endless answer would hold a place for
/// no reader.
async fn both_ways<H>(program: UnixStream, host: H) -> io::Result<()>
where
    H: AsyncRead + AsyncWrite,
{
    let look = program.as_fd().try_clone_to_owned()?;
    let (mut from_program, mut to_program) = program.into_split();
    let (mut from_host, mut to_host) = tokio::io::split(host);
    let (said, last_word) = oneshot::channel();
    // Neither takes its halves: they live until both ways have ended.
    let question = async {
        ways::copy(&mut from_program, &mut to_host).await?;
        let _ = said.send(());
        Ok(())
    };
    let answer = async {
        tokio::select! {
            answered = ways::copy(&mut from_host, &mut to_program) => answered,
            Ok(()) = async { last_word.await.map_err(drop)?; gone(look.as_fd()).await } => Ok(()),
        }
    };
    ways::both(question, answer).await
}

/// Returns once the program's end is fully closed.
async fn gone(program: BorrowedFd<'_>) -> Result<(), ()> {
    loop {
        let mut look = [PollFd::new(&program, PollFlags::empty())];
        // Hang-ups are always reported, and the poll does not wait.
        if poll(&mut look, Some(&Timespec::default())).is_err()
            || look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
        {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Logs the first failed connection. Programs control how often this happens, and each line is an exit to the
/// VMM.
fn failed(error: &io::Error) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "a connection to a socket of the node failed, the first one");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn each_side_s_half_close_is_passed_on() {
        let (mut program, ours) = UnixStream::pair().unwrap();
        let (host, mut server) = tokio::io::duplex(64);
        let carrying = tokio::spawn(both_ways(ours, host));
        let question = vec![b'q'; 100_000];
        let (asked, heard) = tokio::join!(
            async {
                program.write_all(&question).await.unwrap();
                program.shutdown().await.unwrap();
            },
            async {
                let mut heard = Vec::new();
                server.read_to_end(&mut heard).await.unwrap();
                heard
            }
        );
        let () = asked;
        assert_eq!(heard, question);
        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        carrying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_answer_of_a_server_that_takes_no_question_is_carried() {
        let ((mut program, ours), (host, server)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        // Its server takes no question, and answers a little later.
        let server = server.into_std().unwrap();
        server.shutdown(std::net::Shutdown::Read).unwrap();
        let mut server = UnixStream::from_std(server).unwrap();
        program.write_all(b"question").await.unwrap();
        let carrying = tokio::spawn(both_ways(ours, host));
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
    async fn a_server_that_never_answers_a_program_that_is_gone_is_let_go() {
        let (mut program, ours) = UnixStream::pair().unwrap();
        let (host, mut server) = tokio::io::duplex(64);
        let carrying = tokio::spawn(both_ways(ours, host));
        program.write_all(b"question").await.unwrap();
        drop(program);
        carrying.await.unwrap().unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "question");
    }

    #[test]
    fn a_token_of_another_length_is_none() {
        assert!(Token::try_from([0; 31].as_slice()).is_err() && Token::try_from([0; 33].as_slice()).is_err());
        assert_eq!(format!("{:?}", Token::try_from([7; 32].as_slice()).unwrap()), "Token");
    }
}
