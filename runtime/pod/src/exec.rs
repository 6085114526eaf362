//! Runs a command in a container and collects what it says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oci_spec::runtime::Process;
use proto_agent::agent::{ExecRequest, SignalRequest, StreamKind};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use crate::outside::Output;
use crate::roster::Live;
use crate::{ExecOutput, PodError, PodErrorKind};

/// What is kept of each stream, in bytes: what a CRI answer can hold. The rest is read and dropped.
const KEPT_BYTES: usize = 16 << 20;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// How long a command that was killed may take to end.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// How long output may go on after the command has ended: a child that it left behind may hold the pipe.
const OUTPUT_AFTER_EXIT: Duration = Duration::from_secs(2);

/// A command to run.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) live: Live,
    pub(crate) container_id: String,
    pub(crate) process: Arc<Process>,
    pub(crate) command: Vec<String>,
    pub(crate) timeout: Option<Duration>,
}

impl Exec {
    /// Runs it. A command that takes too long is killed.
    pub(crate) async fn run(self) -> Result<ExecOutput, PodError> {
        let exec_id = crate::clock::new_id();
        let process = runtime_spec::exec_process(&self.process, self.command.clone(), false);
        let process_json = serde_json::to_vec(&process)
            .map_err(|error| PodError::internal("writing the command's OCI process").because(error))?;
        let request = ExecRequest {
            container_id: self.container_id.clone(),
            exec_id: exec_id.clone(),
            process_json,
            ..ExecRequest::default()
        };
        self.live.call("starting the command", self.live.agent.exec(request)).await?;
        let collected = self.collect(&exec_id);
        let Some(timeout) = self.timeout.filter(|timeout| !timeout.is_zero()) else {
            return collected.await;
        };
        match tokio::time::timeout(timeout, collected).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.kill(&exec_id).await;
                let text =
                    format!("the command did not end within {} s and was killed", timeout.as_secs_f32());
                Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
            }
        }
    }

    async fn collect(&self, exec_id: &str) -> Result<ExecOutput, PodError> {
        let open = |kind| self.live.agent.output(&self.container_id, exec_id, kind, 0);
        let opening = async {
            let stdout = open(StreamKind::STREAM_KIND_STDOUT).await?;
            Ok((stdout, open(StreamKind::STREAM_KIND_STDERR).await?))
        };
        let (stdout, stderr) = self.live.call("opening the command's output", opening).await?;
        let (stdout, stderr) = (Kept::read(stdout), Kept::read(stderr));
        let waiting = self.live.agent.wait(&self.container_id, exec_id);
        let end = self.live.call("waiting for the command", waiting).await?;
        let reading = async { tokio::join!(stdout.finished(), stderr.finished()) };
        if tokio::time::timeout(OUTPUT_AFTER_EXIT, reading).await.is_err() {
            tracing::debug!(
                container = self.container_id,
                "a command left something behind that holds its output"
            );
        }
        Ok(ExecOutput { stdout: stdout.take(), stderr: stderr.take(), exit_code: end.exit_code })
    }

    async fn kill(&self, exec_id: &str) {
        let kill = SignalRequest {
            container_id: self.container_id.clone(),
            exec_id: exec_id.to_owned(),
            signal: 9,
            ..SignalRequest::default()
        };
        let killing = async {
            self.live.call("killing the command", self.live.agent.signal(kill)).await?;
            self.live.call("waiting for the command", self.live.agent.wait(&self.container_id, exec_id)).await
        };
        match tokio::time::timeout(KILLED_WITHIN, killing).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    container = self.container_id,
                    error = error.chain(),
                    "a command was not killed"
                );
            }
            Err(_) => tracing::warn!(container = self.container_id, "a killed command does not end"),
        }
    }
}

/// The beginning of a stream, which is read to its end whatever becomes of the caller: the agent keeps a
/// command until all it said was acknowledged.
struct Kept {
    bytes: Arc<Mutex<Vec<u8>>>,
    done: watch::Receiver<bool>,
}

impl Kept {
    fn read(output: Output) -> Kept {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (finished, done) = watch::channel(false);
        let kept = bytes.clone();
        tokio::spawn(async move {
            read(output, &kept).await;
            finished.send_replace(true);
        });
        Kept { bytes, done }
    }

    async fn finished(&self) {
        // A reader that is gone has finished too.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }

    /// What was kept so far.
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads to the end, keeps the beginning, acknowledges all. A stream that breaks off ends there.
async fn read(mut output: Output, kept: &Mutex<Vec<u8>>) {
    let mut chunk = vec![0; CHUNK];
    let (mut total, mut room) = (0, KEPT_BYTES);
    while let Ok(length) = output.reader.read(&mut chunk).await {
        if length == 0 {
            return;
        }
        let keep = length.min(room);
        room -= keep;
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..keep]);
        total += length as u64;
        if output.acknowledge.acknowledge(total).await.is_err() {
            // The agent is going away; what it says still counts.
            tracing::debug!("an acknowledgement of a command's output was not taken");
        }
    }
}
