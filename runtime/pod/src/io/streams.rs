//! A process's streams for an interactive client: an exec's own, or those of a container's first process as
//! seen by an attached client.

use std::time::Duration;

use runtime_guest::SignalTarget;
use runtime_pieces::{Piece, Pieces};
use runtime_spec::Signal;
use tokio::sync::watch;

use super::followers::Follower;
use crate::backend::Input;
use crate::container::kill;
use crate::error::PodError;
use crate::live::Live;

/// How long a process may take to end after a hang-up, when its client has gone, before it is killed.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(5);

/// How long a killed process may take to end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

const SIGHUP: Signal = Signal(1);

/// One client's streams to a process.
#[derive(Debug)]
pub struct ProcessStreams {
    /// The destination of the client's input; `None` if the process takes none.
    pub input: Option<ProcessInput>,
    /// A terminal's output too; `None` if it was not requested.
    pub stdout: Option<ProcessOutput>,
    /// `None` for a terminal too.
    pub stderr: Option<ProcessOutput>,
    /// The process's end.
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
    /// The process, or its VM, has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.input.write(bytes).await
    }

    /// Gives the terminal a new size, in characters, after all earlier writes.
    ///
    /// # Errors
    /// The process, or its VM, has ended.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> std::io::Result<()> {
        self.input.resize(columns, rows).await
    }

    /// Returns true if the client's end of input is the process's.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// Notes the end of the client's input. The container decides whether this ends the process's input.
    ///
    /// # Errors
    /// The process, or its VM, has ended.
    pub async fn end(&mut self) -> std::io::Result<()> {
        if self.ends { self.input.end().await } else { Ok(()) }
    }
}

/// A process's output.
#[derive(Debug)]
pub struct ProcessOutput(pub(crate) Source);

/// The source of output.
#[derive(Debug)]
pub(crate) enum Source {
    /// The process's own stream: bytes not taken hold the process.
    Own(Pieces),
    /// Output on its way to the container's log.
    Followed(Follower),
}

impl ProcessOutput {
    /// The next bytes, 256 KiB at most; `None` at the end.
    ///
    /// # Errors
    /// The VM has ended, or the client was too slow for the container it is attached to.
    pub async fn next(&mut self) -> Result<Option<Piece>, PodError> {
        match &mut self.0 {
            Source::Followed(follower) => Ok(follower.next().await?.map(Piece::Held)),
            Source::Own(pieces) => {
                let piece = pieces.next().await;
                piece.map_err(|error| PodError::internal("reading the command's output").because(error))
            }
        }
    }
}

/// A process's end.
#[derive(Debug)]
pub enum ProcessEnd {
    /// An exec's end. The exec ends with its client.
    Exec(ExecEnd),
    /// A container's end. The container does not depend on its client.
    Container(ContainerEnd),
}

/// How an exec ends.
#[derive(Debug)]
pub struct ExecEnd {
    pub(crate) live: Live,
    pub(crate) container_id: String,
    pub(crate) exec_id: String,
}

/// How a container ends, for an attached client.
#[derive(Debug)]
pub struct ContainerEnd(pub(crate) watch::Receiver<bool>);

impl ProcessEnd {
    /// Waits for it; gives an exec's exit code.
    ///
    /// # Errors
    /// The VM has ended.
    pub async fn wait(&self) -> Result<Option<i32>, PodError> {
        match self {
            ProcessEnd::Exec(exec) => exec.wait().await.map(Some),
            ProcessEnd::Container(ContainerEnd(ended)) => {
                // A container removed meanwhile has ended too.
                let _ = ended.clone().wait_for(|ended| *ended).await;
                Ok(None)
            }
        }
    }

    /// Notes that the client has gone: an exec is hung up on, and then killed. A container goes on.
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
        for (signal, within) in [(SIGHUP, HUNG_UP_WITHIN), (Signal::KILL, KILLED_WITHIN)] {
            if tokio::time::timeout(within, self.end_by(signal)).await.is_ok() {
                return;
            }
        }
        tracing::warn!(container = self.container_id, "a command does not end after its client has gone");
    }

    /// Kills it and all processes it started, and waits for it.
    pub(crate) async fn kill(&self) {
        if tokio::time::timeout(KILLED_WITHIN, self.end_by(Signal::KILL)).await.is_err() {
            tracing::warn!(container = self.container_id, "a killed command does not end");
        }
    }

    async fn end_by(&self, signal: Signal) {
        let target = SignalTarget::Exec(&self.exec_id);
        if let Err(error) =
            kill::signal(&self.live, "ending the command", &self.container_id, target, signal).await
        {
            tracing::debug!(
                container = self.container_id,
                error = error.chain(),
                "a command is not signalled"
            );
        }
        // If the VM has ended, the command has ended with it.
        let _ = self.wait().await;
    }
}
