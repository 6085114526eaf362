//! Input: from host connections into a process's pipe or terminal, record by record
//! ([`proto_agent::record`]). A process not reading its input blocks only its writers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use agent_container::syscall;
use proto_agent::record::{RECORD_BYTES, Record};
use rustix::event::PollFlags;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

use crate::streams::pipe_end::{PipeEnd, ready};

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// Most simultaneous connections to one input. After its host is gone, a connection stays until the process
/// takes its bytes.
const WRITERS_MAX: usize = 32;
/// Pause when a write finds no room although the kernel reports some.
const NO_ROOM: Duration = Duration::from_millis(10);
/// End of file for a terminal, at the start of a line: EOT (termios(3), VEOF).
const END_OF_TRANSMISSION: [u8; 1] = [4];

/// Standard input of one process, or of its terminal. Several connections may write. The bytes of one write
/// stay together.
#[derive(Debug)]
pub(crate) struct Input {
    target: Mutex<Option<Target>>,
    terminal: bool,
    writers: Arc<Semaphore>,
    /// Whether the process has ended.
    ended: watch::Receiver<bool>,
}

/// The pipe or the terminal.
#[derive(Debug)]
struct Target {
    /// A second descriptor, for readiness. It is the first field, because it must be closed first.
    watched: pipe::Sender,
    end: PipeEnd,
}

/// One connection's place at an input.
#[derive(Debug)]
pub(crate) struct Writer {
    input: Arc<Input>,
    _place: OwnedSemaphorePermit,
}

impl Input {
    /// A stream into `target`: a pipe, or the master side of a terminal.
    pub(crate) fn new(
        target: OwnedFd,
        terminal: bool,
        ended: watch::Receiver<bool>,
    ) -> io::Result<Arc<Input>> {
        let end = PipeEnd::new(target)?;
        // Unchecked, because a terminal's master side is no pipe. Readiness works the same.
        let watched = pipe::Sender::from_owned_fd_unchecked(end.to_watch()?)?;
        let target = Target { watched, end };
        let writers = Arc::new(Semaphore::new(WRITERS_MAX));
        Ok(Arc::new(Input { target: Mutex::new(Some(target)), terminal, writers, ended }))
    }

    /// Returns a place for one more connection, or the reason of its refusal. After the end of the input a
    /// connection still opens, and its bytes are lost: its client may want the output, too. After the
    /// process's end it ends at once: a command may be over before its client has come.
    pub(crate) fn writer(self: &Arc<Self>) -> Result<Writer, String> {
        let place = Arc::clone(&self.writers).try_acquire_owned();
        let place = place.map_err(|_| format!("{WRITERS_MAX} clients write to standard input already"))?;
        Ok(Writer { input: Arc::clone(self), _place: place })
    }

    /// Closes the descriptor of an ended process.
    pub(crate) async fn release(&self) {
        *self.target.lock().await = None;
    }

    /// Returns true if the end of file has been passed on.
    #[cfg(test)]
    fn closed(&self) -> bool {
        self.target.try_lock().is_ok_and(|target| target.is_none())
    }

    /// Handles the connection's records until the connection or the process ends. The end of a connection
    /// does not end the input.
    async fn serve<S: AsyncRead>(&self, connection: S) -> io::Result<()> {
        tokio::pin!(connection);
        let mut ended = self.ended.clone();
        let records = async {
            let mut head = [0; RECORD_BYTES];
            loop {
                match connection.read_exact(&mut head).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
                match Record::decode(head).map_err(io::Error::other)? {
                    Record::Bytes(count) => self.pass((&mut connection).take(u64::from(count))).await?,
                    Record::Resize { columns, rows } => self.resize(columns, rows).await,
                    Record::End => self.end().await,
                }
            }
        };
        tokio::select! {
            outcome = records => outcome,
            // The sender is dropped with the process, so this is an end, too.
            _ = ended.wait_for(|ended| *ended) => Ok(()),
        }
    }

    /// Writes a record's bytes. If the process has closed its input, they are lost, as in a pipe of a shell.
    async fn pass<S: AsyncRead + Unpin>(&self, mut bytes: S) -> io::Result<()> {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let count = bytes.read(&mut chunk).await?;
            if count == 0 {
                return Ok(());
            }
            chunk.truncate(count);
            let mut slot = self.target.lock().await;
            if let Some(target) = slot.as_ref()
                && let Err(error) = write_all(target, chunk).await
            {
                tracing::debug!(%error, "a process takes no more input");
                if !self.terminal {
                    *slot = None;
                }
            }
        }
    }

    async fn resize(&self, columns: u16, rows: u16) {
        let slot = self.target.lock().await;
        let Some(target) = slot.as_ref().filter(|_| self.terminal) else { return };
        if let Err(error) = syscall::set_window_size(target.end.as_fd(), columns, rows) {
            tracing::debug!(%error, "a terminal refused a size");
        }
    }

    async fn end(&self) {
        let mut slot = self.target.lock().await;
        if !self.terminal {
            *slot = None;
            return;
        }
        // A terminal's master side carries the output, too, so it stays open.
        if let Some(target) = slot.as_ref()
            && let Err(error) = write_all(target, END_OF_TRANSMISSION.to_vec()).await
        {
            tracing::debug!(%error, "a terminal refused an end of file");
        }
    }
}

async fn write_all(target: &Target, bytes: Vec<u8>) -> io::Result<()> {
    let bytes: Arc<[u8]> = bytes.into();
    let mut from = 0;
    while from < bytes.len() {
        let all = Arc::clone(&bytes);
        let written = target.end.call(move |end| rustix::io::write(end, &all[from..])).await?;
        match written.map_err(io::Error::from) {
            Ok(count) => from += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Clears the readiness if there is no room.
                match target.watched.try_io(|| ready(target.watched.as_fd(), PollFlags::OUT)) {
                    Err(_) => target.watched.writable().await?,
                    // A terminal may count its room differently from a write.
                    Ok(()) => tokio::time::sleep(NO_ROOM).await,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Writer {
    /// Handles the connection's records until the connection or the process ends.
    pub(crate) async fn serve<S: AsyncRead>(&self, connection: S) -> io::Result<()> {
        self.input.serve(connection).await
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    fn typed(text: &str) -> Vec<u8> {
        let count = u32::try_from(text.len()).unwrap();
        [&Record::Bytes(count).encode()[..], text.as_bytes()].concat()
    }

    #[tokio::test]
    async fn an_end_is_the_process_s_end_of_file_and_a_close_is_not() {
        let (mut process, target) = std::io::pipe().unwrap();
        let (_alive, ended) = watch::channel(false);
        let input = Input::new(target.into(), false, ended).unwrap();
        for (text, end) in [("one ", false), ("two", true)] {
            let (mut host, connection) = duplex(64);
            host.write_all(&typed(text)).await.unwrap();
            if end {
                host.write_all(&Record::End.encode()).await.unwrap();
            }
            drop(host);
            input.serve(connection).await.unwrap();
            assert_eq!(input.closed(), end);
        }
        let mut text = String::new();
        process.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
    }

    #[tokio::test]
    async fn a_process_that_closed_its_input_loses_it_and_goes_on() {
        let (process, target) = std::io::pipe().unwrap();
        drop(process);
        let (_alive, ended) = watch::channel(false);
        let input = Input::new(target.into(), false, ended).unwrap();
        let (mut host, connection) = duplex(64);
        host.write_all(&typed("typed")).await.unwrap();
        host.write_all(&typed("more")).await.unwrap();
        drop(host);
        input.serve(connection).await.unwrap();
        assert!(input.closed());
    }

    #[tokio::test]
    async fn a_client_that_comes_after_the_end_is_served_and_its_input_is_lost() {
        let (mut process, target) = std::io::pipe().unwrap();
        let (_alive, ended) = watch::channel(false);
        let input = Input::new(target.into(), false, ended).unwrap();
        input.end().await;
        let (mut host, connection) = duplex(64);
        let late = input.writer().unwrap();
        let serving = tokio::spawn(async move { late.serve(connection).await });
        host.write_all(&typed(&"x".repeat(1000))).await.unwrap();
        host.write_all(&Record::End.encode()).await.unwrap();
        drop(host);
        serving.await.unwrap().unwrap();
        let mut text = String::new();
        process.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[tokio::test]
    async fn writers_are_bounded_and_make_room_when_they_leave() {
        let (_process, target) = std::io::pipe().unwrap();
        let (alive, ended) = watch::channel(false);
        let input = Input::new(target.into(), false, ended).unwrap();
        let mut writers: Vec<_> = (0..WRITERS_MAX).map(|_| input.writer().unwrap()).collect();
        assert!(input.writer().unwrap_err().contains("already"));
        writers.pop();
        input.writer().unwrap();
        input.release().await;
        alive.send(true).unwrap();
        let (_host, connection) = duplex(64);
        input.writer().unwrap().serve(connection).await.unwrap();
    }

    #[tokio::test]
    async fn a_process_s_end_frees_writers_that_wait() {
        let (_process, target) = std::io::pipe().unwrap();
        let (alive, ended) = watch::channel(false);
        let input = Input::new(target.into(), false, ended).unwrap();
        let (mut host, connection) = duplex(1 << 20);
        for _ in 0..8 {
            host.write_all(&typed(&"x".repeat(32 << 10))).await.unwrap();
        }
        let serving = tokio::spawn(async move { input.serve(connection).await });
        tokio::task::yield_now().await;
        alive.send(true).unwrap();
        serving.await.unwrap().unwrap();
    }
}
