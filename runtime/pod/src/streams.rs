//! A process's streams, for a client that talks to it: an exec's own, or those of a container's first process
//! as somebody who is attached sees them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto_agent::UNACKNOWLEDGED_BYTES_MAX;
use proto_agent::agent::SignalRequest;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use crate::PodError;
use crate::outside::{Input, Output};
use crate::roster::Live;
use crate::tap::Follower;

/// Bytes read at a time. A prompt needs little room; what fills it is given more, up to the most that one packet from
/// the guest carries.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Bytes taken from a command after which the agent is told. Each word wakes the guest, so they are few; the agent
/// has as much again to go on with meanwhile.
const ACKNOWLEDGED_BYTES: u64 = UNACKNOWLEDGED_BYTES_MAX as u64 / 2;

/// How long a process whose client has gone may take to end when it is hung up on, before it is killed.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(5);

/// How long a process that was killed may take to end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

const SIGHUP: u32 = 1;
const SIGKILL: u32 = 9;

/// One client's streams to a process.
#[derive(Debug)]
pub struct ProcessStreams {
    /// Where the client's input goes; `None` where the process takes none.
    pub input: Option<ProcessInput>,
    /// A terminal's output too; `None` where it was not asked for.
    pub stdout: Option<ProcessOutput>,
    /// `None` for a terminal too.
    pub stderr: Option<ProcessOutput>,
    /// Its end.
    pub end: ProcessEnd,
}

/// A process's stdin, and its terminal's size.
#[derive(Debug)]
pub struct ProcessInput {
    pub(crate) input: Box<dyn Input>,
    /// Whether the client's end of input is the process's.
    pub(crate) ends: bool,
}

impl ProcessInput {
    /// Writes all bytes; waits while the process does not take them.
    ///
    /// # Errors
    /// The process, or its machine, has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.input.write(bytes).await
    }

    /// Gives the terminal a new size, in characters, after all that was written before.
    ///
    /// # Errors
    /// The process, or its machine, has ended.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> std::io::Result<()> {
        self.input.resize(columns, rows).await
    }

    /// The client says no more. Whether that ends the process's input is the container's to say.
    ///
    /// # Errors
    /// The process, or its machine, has ended.
    pub async fn end(&mut self) -> std::io::Result<()> {
        if self.ends { self.input.end().await } else { Ok(()) }
    }
}

/// A process's output.
#[derive(Debug)]
pub struct ProcessOutput(pub(crate) Source);

/// Where output comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The process's own stream: what is not taken holds the process.
    Own(OwnOutput),
    /// What is on its way to the container's log.
    Followed(Follower),
}

impl ProcessOutput {
    pub(crate) fn own(output: Output) -> ProcessOutput {
        ProcessOutput(Source::Own(OwnOutput { output, room: CHUNK_BYTES_MIN, total: 0, acknowledged: 0 }))
    }

    /// The next bytes, 64 KiB at most; `None` at the end.
    ///
    /// # Errors
    /// The machine has ended, or the client was too slow for the container it is attached to.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PodError> {
        match &mut self.0 {
            Source::Followed(follower) => follower.next().await,
            Source::Own(own) => own.next().await,
        }
    }
}

/// A command's own output, and how much of it was taken.
#[derive(Debug)]
pub(crate) struct OwnOutput {
    output: Output,
    /// For the next read.
    room: usize,
    total: u64,
    /// What the agent has been told of that.
    acknowledged: u64,
}

impl OwnOutput {
    async fn next(&mut self) -> Result<Option<Bytes>, PodError> {
        let mut chunk = BytesMut::with_capacity(self.room);
        let count = self.output.reader.read_buf(&mut chunk).await;
        let count =
            count.map_err(|error| PodError::internal("reading the command's output").because(error))?;
        self.room = match count {
            full if full >= self.room => CHUNK_BYTES_MAX,
            little if little <= CHUNK_BYTES_MIN => CHUNK_BYTES_MIN,
            _ => self.room,
        };
        self.total += count as u64;
        let unacknowledged = self.total - self.acknowledged;
        // All of it at the end: the agent keeps a command until then.
        if unacknowledged >= ACKNOWLEDGED_BYTES || (count == 0 && unacknowledged > 0) {
            self.acknowledged = self.total;
            if self.output.acknowledge.acknowledge(self.total).await.is_err() {
                // The agent is going away; what it says still counts.
                tracing::debug!("an acknowledgement of a command's output was not taken");
            }
        }
        Ok((count > 0).then(|| chunk.freeze()))
    }
}

/// A process's end.
#[derive(Debug)]
pub enum ProcessEnd {
    /// An exec's, which goes with its client.
    Exec(ExecEnd),
    /// A container's, which does not.
    Container(ContainerEnd),
}

/// How an exec ends.
#[derive(Debug)]
pub struct ExecEnd {
    pub(crate) live: Live,
    pub(crate) container_id: String,
    pub(crate) exec_id: String,
}

/// How a container ends, for one who is attached.
#[derive(Debug)]
pub struct ContainerEnd(pub(crate) watch::Receiver<bool>);

impl ProcessEnd {
    /// Waits for it; gives an exec's exit code.
    ///
    /// # Errors
    /// The machine has ended.
    pub async fn wait(&self) -> Result<Option<i32>, PodError> {
        match self {
            ProcessEnd::Exec(exec) => exec.wait().await.map(Some),
            ProcessEnd::Container(ContainerEnd(ended)) => {
                // A container that was removed meanwhile has ended too.
                let _ = ended.clone().wait_for(|ended| *ended).await;
                Ok(None)
            }
        }
    }

    /// The client has gone: an exec is hung up on, and then killed. A container goes on.
    pub async fn client_gone(&self) {
        if let ProcessEnd::Exec(exec) = self {
            exec.hang_up().await;
        }
    }
}

impl ExecEnd {
    async fn wait(&self) -> Result<i32, PodError> {
        let waiting = self.live.agent.wait(&self.container_id, &self.exec_id);
        Ok(self.live.call("waiting for the command", waiting).await?.exit_code)
    }

    async fn hang_up(&self) {
        for (signal, within) in [(SIGHUP, HUNG_UP_WITHIN), (SIGKILL, KILLED_WITHIN)] {
            if tokio::time::timeout(within, self.end_by(signal)).await.is_ok() {
                return;
            }
        }
        tracing::warn!(container = self.container_id, "a command whose client has gone does not end");
    }

    /// Kills it and all that it started, and waits for it.
    pub(crate) async fn kill(&self) {
        if tokio::time::timeout(KILLED_WITHIN, self.end_by(SIGKILL)).await.is_err() {
            tracing::warn!(container = self.container_id, "a killed command does not end");
        }
    }

    async fn end_by(&self, signal: u32) {
        let request = SignalRequest {
            container_id: self.container_id.clone(),
            exec_id: self.exec_id.clone(),
            signal,
            tree: true,
            ..SignalRequest::default()
        };
        if let Err(error) = self.live.call("ending the command", self.live.agent.signal(request)).await {
            tracing::debug!(
                container = self.container_id,
                error = error.chain(),
                "a command is not signalled"
            );
        }
        // A machine that has ended took the command along.
        let _ = self.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;

    use super::*;
    use crate::outside::Acknowledge;

    struct Told(Arc<Mutex<Vec<u64>>>);

    #[async_trait]
    impl Acknowledge for Told {
        async fn acknowledge(&mut self, total: u64) -> std::io::Result<()> {
            self.0.lock().unwrap().push(total);
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_a_command_said_is_acknowledged_in_large_steps_and_all_of_it_at_the_end() {
        let told = Arc::<Mutex<Vec<u64>>>::default();
        let reader = Box::new(std::io::Cursor::new(vec![b'x'; 300_000]));
        let output = Output { reader, acknowledge: Box::new(Told(told.clone())) };
        let mut output = ProcessOutput::own(output);
        let mut taken = 0;
        while let Some(bytes) = output.next().await.unwrap() {
            taken += bytes.len();
        }
        assert_eq!(taken, 300_000);
        // The first piece is a short one, and the others as long as can be.
        let step = CHUNK_BYTES_MIN as u64 + ACKNOWLEDGED_BYTES;
        assert_eq!(*told.lock().unwrap(), [step, step + ACKNOWLEDGED_BYTES, 300_000]);
    }
}
