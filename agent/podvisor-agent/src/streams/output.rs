//! A container's output: from the process's pipe or terminal into a bounded buffer
//! ([`crate::streams::buffer`]), and from there to the newest host connection. If the buffer is full, bytes
//! stay in the pipe and block only the process.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use proto_agent::UNACKNOWLEDGED_BYTES_MAX;
use rustix::event::PollFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};

use crate::streams::buffer::{OffsetError, OutputBuffer};
use crate::streams::grace::Grace;
use crate::streams::pipe_end::{PipeEnd, ready};

/// A pipe's capacity (`PIPE_DEF_BUFFERS` pages, pipe(7)): the most bytes left there by the process itself.
const PIPE_BYTES: usize = 64 * 1024;
/// Bytes moved at a time: a pipe's capacity and the limit of one vsock packet
/// (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`, include/linux/virtio_vsock.h). Each packet costs an exit or two.
const CHUNK_BYTES: usize = 64 * 1024;
/// A stream silent for this long frees its unused memory.
const SILENCE: Duration = Duration::from_secs(1);

/// Lends a buffer for bytes in transit, without an await in between. All streams of a thread share one, so
/// that no stream needs its own memory.
fn passing<T>(through: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local!(static PLACE: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]));
    PLACE.with_borrow_mut(|place| through(place))
}

/// One output stream of one process.
#[derive(Debug)]
pub(crate) struct Output {
    buffer: Mutex<OutputBuffer>,
    /// Notified when the buffer has more bytes, or its end.
    grew: Notify,
    /// Notified when the buffer has more space.
    shrank: Notify,
    /// Number of the newest host connection. Older ones end.
    connection: watch::Sender<u64>,
}

impl Output {
    /// Starts a stream of `source`, until its end or until a little after `ended` turns true.
    pub(crate) fn start(source: OwnedFd, ended: watch::Receiver<bool>) -> io::Result<Arc<Output>> {
        let source = PipeEnd::new(source)?;
        // Unchecked, because a terminal's master side is no pipe. Readiness works the same.
        let watched = pipe::Receiver::from_owned_fd_unchecked(source.to_watch()?)?;
        let output = Arc::new(Output {
            buffer: Mutex::new(OutputBuffer::new(UNACKNOWLEDGED_BYTES_MAX)),
            grew: Notify::new(),
            shrank: Notify::new(),
            connection: watch::Sender::new(0),
        });
        let pumping = Arc::clone(&output);
        tokio::spawn(async move { pumping.pump(&source, watched, ended).await });
        Ok(output)
    }

    async fn pump(self: Arc<Self>, source: &PipeEnd, watched: pipe::Receiver, ended: watch::Receiver<bool>) {
        let mut grace = Grace::new(ended, PIPE_BYTES);
        loop {
            let space = self.buffer().space().min(CHUNK_BYTES);
            if space == 0 {
                self.shrank.notified().await;
                continue;
            }
            if grace.is_over(source).await || !self.is_readable(&watched, &mut grace).await {
                break;
            }
            let output = Arc::clone(&self);
            let reading = source.call(move |pipe| {
                passing(|place| {
                    let read = rustix::io::read(pipe, &mut place[..space]);
                    read.inspect(|count| output.buffer().push(&place[..*count]))
                })
            });
            let Some(taken) = grace.wait_for_call(reading).await else { break };
            match taken.and_then(|taken| taken.map_err(io::Error::from)) {
                Ok(0) => break,
                Ok(count) => {
                    grace.saw(count);
                    self.grew.notify_waiters();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The answer of a terminal with its other side closed (drivers/tty/n_tty.c). The agent holds
                // the other side until the process's end.
                Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => break,
                Err(error) => {
                    tracing::warn!(%error, "an output stream cannot be read");
                    break;
                }
            }
        }
        self.buffer().end_of_stream();
        self.grew.notify_waiters();
    }

    /// Waits until there is something to read, and frees memory meanwhile. Returns false if the stream is
    /// over.
    async fn is_readable(&self, watched: &pipe::Receiver, grace: &mut Grace) -> bool {
        loop {
            let more = grace.wait(watched.readable());
            tokio::pin!(more);
            let more = match tokio::time::timeout(SILENCE, &mut more).await {
                Ok(more) => more,
                Err(_) => {
                    self.buffer().release();
                    more.await
                }
            };
            if !matches!(more, Some(Ok(()))) {
                return false;
            }
            // Clears the readiness if nothing is left. This costs less than a futile call.
            if watched.try_io(|| ready(watched.as_fd(), PollFlags::IN)).is_ok() {
                return true;
            }
        }
    }

    /// Sends the stream from `offset` on to a host connection, and takes the host's acknowledgements. Ends
    /// when the host has all, closes, or reopens the stream.
    pub(crate) async fn serve<S>(&self, connection: S, offset: u64) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite,
    {
        let mut number = 0;
        self.connection.send_modify(|count| {
            *count += 1;
            number = *count;
        });
        let mut newest = self.connection.subscribe();
        let (reader, writer) = tokio::io::split(connection);
        tokio::select! {
            result = async { tokio::try_join!(self.send(writer, offset), self.take_acknowledgements(reader)) } => {
                result.map(|_| ())
            }
            _ = newest.wait_for(|count| *count != number) => Ok(()),
        }
    }

    async fn send<W: AsyncWrite>(&self, writer: W, mut offset: u64) -> io::Result<()> {
        tokio::pin!(writer);
        loop {
            let grew = self.grew.notified();
            tokio::pin!(grew);
            // Registered before reading the buffer, so that no notification in between is missed.
            grew.as_mut().enable();
            let sent = poll_fn(|context| {
                passing(|place| match self.buffer().read(offset, place) {
                    0 => Poll::Ready(Ok(None)),
                    count => writer.as_mut().poll_write(context, &place[..count]).map_ok(Some),
                })
            });
            match sent.await? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(count) => offset += count as u64,
                None if self.buffer().ends_at(offset) => return writer.shutdown().await,
                None => grew.await,
            }
        }
    }

    async fn take_acknowledgements<R: AsyncRead>(&self, reader: R) -> io::Result<()> {
        tokio::pin!(reader);
        loop {
            let mut total = [0; 8];
            match reader.read_exact(&mut total).await {
                Ok(_) => self.acknowledge(u64::from_le_bytes(total)).map_err(io::Error::other)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    // A host with all of the output may close. Any other is gone.
                    let finished = self.buffer().finished();
                    return if finished { Ok(()) } else { Err(error) };
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that the host may continue at `offset`, and counts the bytes before as acknowledged.
    pub(crate) fn resume(&self, offset: u64) -> Result<(), OffsetError> {
        self.buffer().check(offset)?;
        self.acknowledge(offset)
    }

    /// Returns true if the host has all of the stream.
    pub(crate) fn finished(&self) -> bool {
        self.buffer().finished()
    }

    fn acknowledge(&self, total: u64) -> Result<(), OffsetError> {
        self.buffer().acknowledge(total)?;
        self.shrank.notify_one();
        Ok(())
    }

    fn buffer(&self) -> MutexGuard<'_, OutputBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use tokio::io::duplex;

    use super::*;
    use crate::streams::pipe_end::tests::Holder;

    fn pipe() -> (OwnedFd, File) {
        let (reader, writer) = std::io::pipe().unwrap();
        (reader.into(), File::from(OwnedFd::from(writer)))
    }

    async fn serve(output: &Arc<Output>, offset: u64) -> tokio::io::DuplexStream {
        let (ours, theirs) = duplex(1024);
        output.resume(offset).unwrap();
        let output = Arc::clone(output);
        tokio::spawn(async move { output.serve(theirs, offset).await });
        ours
    }

    #[tokio::test]
    async fn a_process_that_holds_its_pipe_holds_nobody_else_up() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (_alive, ended) = watch::channel(false);
        writer.write_all(b"first").unwrap();
        let holder = Holder::hold(writer.into());
        let output = Output::start(reader.into(), ended).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        holder.let_go();
        let (mut host, connection) = duplex(64);
        let serving = tokio::spawn(async move { output.serve(connection, 0).await });
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "first!");
        drop(host);
        let _ = serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_host_that_comes_back_continues_where_it_was_durable() {
        let (source, mut process) = pipe();
        let (_alive, ended) = watch::channel(false);
        let output = Output::start(source, ended).unwrap();
        process.write_all(b"one two").unwrap();
        let mut first = serve(&output, 0).await;
        let mut bytes = [0; 7];
        first.read_exact(&mut bytes).await.unwrap();
        first.write_all(&4u64.to_le_bytes()).await.unwrap();
        drop(first);
        process.write_all(b" three").unwrap();
        drop(process);
        let mut second = serve(&output, 4).await;
        let mut text = String::new();
        second.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "two three");
        assert!(!output.finished());
        second.write_all(&13u64.to_le_bytes()).await.unwrap();
        while !output.finished() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_process_is_blocked_while_nobody_takes_its_output() {
        let (source, process) = pipe();
        let (_alive, ended) = watch::channel(false);
        let output = Output::start(source, ended).unwrap();
        let written = tokio::task::spawn_blocking(move || {
            let mut process = process;
            process.write_all(&vec![b'x'; 2 * UNACKNOWLEDGED_BYTES_MAX]).unwrap();
        });
        while output.buffer().space() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!written.is_finished());
        let mut host = serve(&output, 0).await;
        let mut total = 0u64;
        let mut bytes = vec![0; 4096];
        while total < 2 * UNACKNOWLEDGED_BYTES_MAX as u64 {
            total += host.read(&mut bytes).await.unwrap() as u64;
            host.write_all(&total.to_le_bytes()).await.unwrap();
        }
        written.await.unwrap();
    }

    #[tokio::test]
    async fn an_ended_process_whose_pipe_others_hold_ends_its_stream() {
        let (source, mut process) = pipe();
        let (alive, ended) = watch::channel(false);
        let output = Output::start(source, ended).unwrap();
        let mut host = serve(&output, 0).await;
        process.write_all(b"last words").unwrap();
        alive.send(true).unwrap();
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "last words");
        drop(process);
    }

    #[tokio::test]
    async fn a_newer_connection_ends_the_older_one() {
        let (source, mut process) = pipe();
        let (_alive, ended) = watch::channel(false);
        let output = Output::start(source, ended).unwrap();
        let mut first = serve(&output, 0).await;
        process.write_all(b"a").unwrap();
        first.read_exact(&mut [0]).await.unwrap();
        let mut second = serve(&output, 0).await;
        second.read_exact(&mut [0]).await.unwrap();
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_offset_beyond_the_stream_is_refused() {
        let (source, _process) = pipe();
        let (_alive, ended) = watch::channel(false);
        let output = Output::start(source, ended).unwrap();
        assert!(matches!(output.resume(1), Err(OffsetError::Beyond { .. })));
    }
}
