//! Runs a command in a container and collects what it says.

use std::sync::Arc;
use std::time::Duration;

use oci_spec::runtime::Process;
use proto_agent::agent::{ExecRequest, SignalRequest, StreamKind};
use tokio::io::AsyncReadExt;

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
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = {
            let reading = async {
                tokio::join!(keep(stdout, &mut out), keep(stderr, &mut err));
            };
            let asking = self.live.agent.wait(&self.container_id, exec_id);
            let waiting = self.live.call("waiting for the command", asking);
            tokio::pin!(reading, waiting);
            tokio::select! {
                end = &mut waiting => {
                    let end = end?;
                    let _ = tokio::time::timeout(OUTPUT_AFTER_EXIT, &mut reading).await;
                    end
                }
                () = &mut reading => waiting.await?,
            }
        };
        Ok(ExecOutput { stdout: out, stderr: err, exit_code: end.exit_code })
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

/// Reads to the end, keeps the beginning, acknowledges all. A stream that breaks off ends there.
async fn keep(mut output: Output, kept: &mut Vec<u8>) {
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    while let Ok(length) = output.reader.read(&mut chunk).await {
        if length == 0 {
            return;
        }
        let room = KEPT_BYTES - kept.len();
        kept.extend_from_slice(&chunk[..length.min(room)]);
        total += length as u64;
        if output.acknowledge.acknowledge(total).await.is_err() {
            // The agent forgets the process some other way; what it says still counts.
            tracing::debug!("an acknowledgement of a command's output was not taken");
        }
    }
}
