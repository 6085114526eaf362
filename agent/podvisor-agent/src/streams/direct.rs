//! A command's output: from its pipe or terminal to a single host connection, moved by the kernel where
//! possible. Nothing is stored, because a command's output is only requested once. Bytes not taken by the
//! host stay in the pipe, and block only the command. A container's output is in [`crate::streams::output`].
//!
//! ```text
//!   waiting ──take──▶ taken ──all is sent──▶ finished
//!      └── at its end, with nothing in it: finished too
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::PollFlags;
use rustix::net::Shutdown;
use rustix::pipe::SpliceFlags;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use crate::streams::grace::Grace;
use crate::streams::pipe_end::{PipeEnd, poll, ready};

/// Capacity of a command's pipe: room to write while the host takes earlier bytes. All of it is moved at
/// once, because each switch between the command and the agent costs more than a page.
const PIPE_BYTES: usize = 256 * 1024;
/// Most bytes of one read from a terminal (`N_TTY_BUF_SIZE`, drivers/tty/n_tty.c).
const TERMINAL_BYTES: usize = 4 * 1024;

/// One output stream of one command.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The pipe or terminal, until a connection takes it.
    source: Mutex<Option<PipeEnd>>,
    /// Whether a connection has taken it.
    taken: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    finished: AtomicBool,
}

impl Direct {
    /// A stream of the bytes of `source`, until its end or until a little after `ended` turns true.
    pub(crate) fn new(source: OwnedFd, ended: watch::Receiver<bool>) -> io::Result<Arc<Direct>> {
        Ok(Arc::new(Direct {
            source: Mutex::new(Some(PipeEnd::new(source)?)),
            taken: watch::Sender::new(false),
            ended,
            finished: AtomicBool::new(false),
        }))
    }

    /// Gives the stream to a connection. Only one may have it.
    pub(crate) fn take(self: &Arc<Self>, offset: u64) -> Result<Taken, String> {
        if offset != 0 {
            return Err("a command's output can be opened from its first byte only".into());
        }
        let source = self.source().take().ok_or("the command's output has been opened already")?;
        self.taken.send_replace(true);
        Ok(Taken { source, stream: Arc::clone(self) })
    }

    /// Waits until a connection takes the stream.
    pub(crate) async fn taken(&self) {
        // The sender lives as long as the stream.
        let _ = self.taken.subscribe().wait_for(|taken| *taken).await;
    }

    /// Returns true if the host has all of the output.
    pub(crate) fn finished(&self) -> bool {
        let at_end =
            |source: &PipeEnd| poll(source.as_fd(), PollFlags::IN).is_ok_and(|now| now == PollFlags::HUP);
        self.finished.load(Ordering::Relaxed) || self.source().as_ref().is_some_and(at_end)
    }

    fn source(&self) -> MutexGuard<'_, Option<PipeEnd>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream taken by a connection.
#[derive(Debug)]
pub(crate) struct Taken {
    source: PipeEnd,
    stream: Arc<Direct>,
}

impl Taken {
    /// Sends the whole output on a connection. The connection must be nonblocking. Fails if the host leaves
    /// before the end.
    pub(crate) async fn serve(self, connection: OwnedFd) -> io::Result<()> {
        let Taken { source, stream } = self;
        let mut grace = Grace::new(stream.ended.clone(), PIPE_BYTES);
        // The connection is watched for input only. If it were watched for room, too, each credit from the
        // host would wake the agent.
        let from_host = pipe::Receiver::from_owned_fd_unchecked(connection.try_clone()?)?;
        let connection = Arc::new(connection);
        tokio::select! {
            sent = send(&source, &connection, &mut grace) => sent?,
            left = host_left(&from_host) => return Err(left),
        }
        rustix::net::shutdown(&connection, Shutdown::Write)?;
        stream.finished.store(true, Ordering::Relaxed);
        Ok(())
    }
}

async fn send(source: &PipeEnd, connection: &Arc<OwnedFd>, grace: &mut Grace) -> io::Result<()> {
    let enlarging = source.call(|pipe| rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES));
    let mut mover = match grace.wait_for_call(enlarging).await {
        None => return Ok(()),
        Some(Ok(Err(rustix::io::Errno::BADF))) => Mover::Copy { held: Vec::new() },
        // A pipe works even if it cannot be enlarged.
        Some(_) => Mover::Splice,
    };
    // Unchecked, because a terminal's master side is no pipe. Readiness works the same.
    let watched = pipe::Receiver::from_owned_fd_unchecked(source.to_watch()?)?;
    while !grace.is_over(source).await {
        if !mover.holds() {
            match grace.wait(watched.readable()).await {
                Some(readable) => readable?,
                None => break,
            }
            // Clears the readiness if nothing is left. This costs less than a futile call.
            if watched.try_io(|| ready(watched.as_fd(), PollFlags::IN)).is_err() {
                continue;
            }
        }
        let to_host = Arc::clone(connection);
        let moving = source.call(move |source| (mover.step(source, to_host.as_fd()), mover));
        let Some(moved) = grace.wait_for_call(moving).await else { break };
        let (moved, after) = moved?;
        mover = after;
        match moved {
            Ok(0) => break,
            Ok(count) => grace.saw(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Either end may have blocked.
                if ready(connection.as_fd(), PollFlags::OUT).is_err() {
                    pipe::Sender::from_owned_fd_unchecked(connection.try_clone()?)?.writable().await?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the host closes its side. The host must send nothing.
async fn host_left(connection: &pipe::Receiver) -> io::Error {
    loop {
        let said = match connection.readable().await {
            Ok(()) => connection.try_read(&mut [0; 1]),
            Err(error) => Err(error),
        };
        match said {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => {
                return io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the host sent bytes on a command's output",
                );
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

/// How bytes are moved.
#[derive(Debug)]
enum Mover {
    /// The kernel moves them from a pipe.
    Splice,
    /// The agent copies them from a terminal. `held` was read, but not sent yet.
    Copy { held: Vec<u8> },
}

impl Mover {
    /// Moves available bytes as far as there is room. Returns their number, and zero at the end.
    fn step(&mut self, source: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> io::Result<usize> {
        let Mover::Copy { held } = self else {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            return Ok(rustix::pipe::splice(source, None, connection, None, PIPE_BYTES, flags)?);
        };
        if held.is_empty() {
            let mut place = [0; TERMINAL_BYTES];
            let count = match rustix::io::read(source, &mut place) {
                // The answer of a terminal with its other side closed (drivers/tty/n_tty.c). The agent holds
                // the other side until the process's end.
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(0),
                count => count?,
            };
            held.extend_from_slice(&place[..count]);
        }
        let sent = rustix::io::write(connection, held)?;
        held.drain(..sent);
        Ok(sent)
    }

    /// Returns true if bytes already read still have to be sent.
    fn holds(&self) -> bool {
        matches!(self, Mover::Copy { held } if !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::streams::pipe_end::tests::Holder;

    /// A command's stream, the command's end of the pipe, and a sender to report the command's end.
    fn command() -> (Arc<Direct>, File, watch::Sender<bool>) {
        let (reader, writer) = std::io::pipe().unwrap();
        let (alive, ended) = watch::channel(false);
        let stream = Direct::new(reader.into(), ended).unwrap();
        (stream, File::from(OwnedFd::from(writer)), alive)
    }

    fn serve(stream: &Arc<Direct>) -> (UnixStream, JoinHandle<io::Result<()>>) {
        let (host, connection) = UnixStream::pair().unwrap();
        let taken = stream.take(0).unwrap();
        (host, tokio::spawn(taken.serve(connection.into_std().unwrap().into())))
    }

    #[tokio::test]
    async fn all_output_of_a_command_comes_through_and_then_the_end() {
        let (stream, mut process, _alive) = command();
        let (mut host, serving) = serve(&stream);
        let said: Vec<u8> = (0..3_000_000u32).map(|number| number.to_le_bytes()[1]).collect();
        let writing = tokio::task::spawn_blocking({
            let said = said.clone();
            move || process.write_all(&said).unwrap()
        });
        let mut heard = Vec::new();
        host.read_to_end(&mut heard).await.unwrap();
        writing.await.unwrap();
        assert!(heard == said);
        serving.await.unwrap().unwrap();
        assert!(stream.finished());
    }

    #[tokio::test]
    async fn a_host_that_does_not_read_blocks_the_command_and_loses_nothing() {
        let (stream, process, _alive) = command();
        let (mut host, serving) = serve(&stream);
        let length = 4 * PIPE_BYTES;
        let writing = tokio::task::spawn_blocking(move || {
            let mut process = process;
            process.write_all(&vec![b'x'; length]).unwrap();
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!writing.is_finished() && !serving.is_finished());
        let mut heard = Vec::new();
        host.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard.len(), length);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn output_that_an_ended_command_left_in_a_pipe_that_others_hold_is_sent() {
        let (stream, mut process, alive) = command();
        process.write_all(b"last words").unwrap();
        alive.send(true).unwrap();
        let (mut host, serving) = serve(&stream);
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "last words");
        serving.await.unwrap().unwrap();
        drop(process);
    }

    #[tokio::test]
    async fn a_command_that_holds_its_pipe_holds_nobody_else_up() {
        let (stream, mut process, _alive) = command();
        process.write_all(b"first").unwrap();
        let holder = Holder::hold(process.into());
        let (mut host, serving) = serve(&stream);
        tokio::time::sleep(Duration::from_millis(50)).await;
        holder.let_go();
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "first!");
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_pipe_that_is_held_after_its_commands_end_is_given_up() {
        let (stream, mut process, alive) = command();
        process.write_all(b"first").unwrap();
        let holder = Holder::hold(process.into());
        let (mut host, serving) = serve(&stream);
        alive.send(true).unwrap();
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "");
        serving.await.unwrap().unwrap();
        holder.let_go();
    }

    #[tokio::test]
    async fn a_host_that_leaves_a_silent_command_is_noticed() {
        let (stream, _process, _alive) = command();
        let (host, serving) = serve(&stream);
        drop(host);
        assert_eq!(serving.await.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(!stream.finished());
    }

    #[tokio::test]
    async fn a_host_that_sends_on_an_output_is_refused() {
        let (stream, _process, _alive) = command();
        let (mut host, serving) = serve(&stream);
        host.write_all(&8u64.to_le_bytes()).await.unwrap();
        assert_eq!(serving.await.unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_terminal_is_read_until_its_other_side_closes() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let (_alive, ended) = watch::channel(false);
        let stream = Direct::new(pair.master, ended).unwrap();
        let (mut host, serving) = serve(&stream);
        let mut process = File::from(pair.slave);
        process.write_all(b"$ ").unwrap();
        let mut prompt = [0; 2];
        host.read_exact(&mut prompt).await.unwrap();
        assert_eq!(&prompt, b"$ ");
        let writing = tokio::task::spawn_blocking(move || process.write_all(&[b'x'; 100_000]).unwrap());
        let mut heard = Vec::new();
        host.read_to_end(&mut heard).await.unwrap();
        writing.await.unwrap();
        assert_eq!(heard.len(), 100_000);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_output_is_given_once_and_from_its_beginning() {
        let (stream, _process, _alive) = command();
        assert!(stream.take(1).unwrap_err().contains("first byte"));
        let _taken = stream.take(0).unwrap();
        assert!(stream.take(0).unwrap_err().contains("opened already"));
    }

    #[tokio::test]
    async fn a_command_without_output_is_finished_without_a_host() {
        let (stream, process, _alive) = command();
        assert!(!stream.finished());
        drop(process);
        assert!(stream.finished());
        let (stream, mut process, _alive) = command();
        process.write_all(b"something").unwrap();
        drop(process);
        assert!(!stream.finished());
    }
}
