//! Runs a command in a container, and collects its output or hands over its streams.

use std::sync::Arc;
use std::time::Duration;

use oci_spec::runtime::Process;
use proto_agent::agent::StreamKind;
use runtime_spec::{ExecPlan, ExecSpec};
use tokio::time::Instant;

use super::captured::{CaptureRoom, CapturedOutput};
use super::streams::{ExecEnd, ProcessEnd, ProcessInput, ProcessOutput, ProcessStreams, Source};
use crate::clock;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::view::ExecOutput;

/// How long output may go on after the command has ended: a remaining child may hold the pipe.
const OUTPUT_AFTER_EXIT: Duration = Duration::from_secs(2);

/// How long a guest may take to start a command, whatever its timeout. A probe's timeout is for the command,
/// and a busy guest is no failure of its program. One that does not answer is.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// How much earlier than its caller the agent gives a command up, counted from the call's arrival. A command
/// whose call is longer on its way may begin after its caller has given it up, and is ended then.
const AGENT_EARLIER: Duration = Duration::from_secs(1);

/// A command to run.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) live: Live,
    pub(crate) container_id: String,
    pub(crate) process: Arc<Process>,
    pub(crate) spec: ExecSpec,
}

impl Exec {
    /// Starts it. The guest does not start it later than `within` after the call's arrival.
    fn start(&self, within: Option<Duration>) -> impl Future<Output = Result<ExecEnd, PodError>> + use<> {
        let plan = ExecPlan::resolve(&self.process, self.spec.clone());
        let (live, container_id) = (self.live.clone(), self.container_id.clone());
        async move {
            let exec_id = clock::new_id();
            let starting = live.agent.exec(&container_id, &exec_id, &plan, within);
            live.call("starting the command", starting).await?;
            Ok(ExecEnd { live, container_id, exec_id })
        }
    }

    /// Starts it and opens its streams. If the streams cannot be opened, it is killed.
    pub(crate) async fn streams(self) -> Result<ProcessStreams, PodError> {
        let end = self.start(None).await?;
        match self.open(&end.exec_id).await {
            Ok((input, stdout, stderr)) => {
                Ok(ProcessStreams { input, stdout: Some(stdout), stderr, end: ProcessEnd::Exec(end) })
            }
            Err(error) => {
                end.kill().await;
                Err(error)
            }
        }
    }

    async fn open(
        &self,
        exec_id: &str,
    ) -> Result<(Option<ProcessInput>, ProcessOutput, Option<ProcessOutput>), PodError> {
        let (agent, id, tty) = (&self.live.agent, &self.container_id, self.spec.tty);
        let opening = async {
            let input = match tty || self.spec.stdin {
                true => Some(ProcessInput { input: agent.input(id, exec_id).await?, ends: self.spec.stdin }),
                false => None,
            };
            let stdout = agent.exec_output(id, exec_id, StreamKind::STREAM_KIND_STDOUT).await?;
            let stderr = match tty {
                true => None,
                false => Some(agent.exec_output(id, exec_id, StreamKind::STREAM_KIND_STDERR).await?),
            };
            let own = |output| ProcessOutput(Source::Own(output));
            Ok((input, own(stdout), stderr.map(own)))
        };
        self.live.call("opening the command's streams", opening).await
    }

    /// Runs it to its end. After the timeout, or once `caller_gone` is ready, the command is killed, with all
    /// processes it started.
    pub(crate) async fn run(
        self,
        timeout: Option<Duration>,
        caller_gone: impl Future<Output = ()>,
    ) -> Result<ExecOutput, PodError> {
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        let end = self.start_in_time(timeout).await?;
        let text = tokio::select! {
            outcome = self.collect(&end.exec_id) => return outcome,
            late = past(timeout) => {
                format!("the command did not end within {} s and was killed", late.as_secs_f32())
            }
            () = caller_gone => "nobody waits for the command any more, and it was killed".to_owned(),
        };
        end.kill().await;
        Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
    }

    /// Starts it. If it has a timeout, the guest must answer soon. A command that begins after that is ended
    /// as soon as the guest reports it. The call has a bound of its own; one that begins later still is ended
    /// by the agent, because nobody opens its output.
    async fn start_in_time(&self, timeout: Option<Duration>) -> Result<ExecEnd, PodError> {
        let Some(timeout) = timeout else { return self.start(None).await };
        let bound = timeout.max(STARTED_WITHIN);
        let within = bound.saturating_sub(AGENT_EARLIER);
        let begun = Instant::now();
        let late = |why: &str| {
            let seconds = bound.as_secs_f32();
            let text = format!("the command was not started within {seconds} s: {why}");
            PodError::new(PodErrorKind::DeadlineExceeded, text)
        };
        let mut starting = Box::pin(self.start(Some(within)));
        match tokio::time::timeout(bound, &mut starting).await {
            // The agent has given it up.
            Ok(Err(error)) if error.kind() == PodErrorKind::Guest && begun.elapsed() >= within => {
                Err(late("the guest is held up").because(error))
            }
            Ok(started) => started,
            Err(_) => {
                // The call is still on its way, or its answer.
                tokio::spawn(async move {
                    if let Ok(end) = starting.await {
                        end.kill().await;
                    }
                });
                Err(late("the guest does not answer"))
            }
        }
    }

    async fn collect(&self, exec_id: &str) -> Result<ExecOutput, PodError> {
        let open = |kind| self.live.agent.exec_output(&self.container_id, exec_id, kind);
        let opening = async {
            let stdout = open(StreamKind::STREAM_KIND_STDOUT).await?;
            Ok((stdout, open(StreamKind::STREAM_KIND_STDERR).await?))
        };
        let (stdout, stderr) = self.live.call("opening the command's output", opening).await?;
        let room = CaptureRoom::default();
        let (stdout, stderr) = (CapturedOutput::read(stdout, &room), CapturedOutput::read(stderr, &room));
        let waiting = self.live.agent.wait(&self.container_id, exec_id);
        let end = self.live.call("waiting for the command", waiting).await?;
        let reading = async { tokio::join!(stdout.finished(), stderr.finished()) };
        if tokio::time::timeout(OUTPUT_AFTER_EXIT, reading).await.is_err() {
            tracing::debug!(container = self.container_id, "a process left by a command holds its output");
        }
        Ok(ExecOutput { stdout: stdout.take(), stderr: stderr.take(), exit_code: end.exit_code })
    }
}

/// Waits for the timeout and returns it. Without one it waits for ever.
async fn past(timeout: Option<Duration>) -> Duration {
    let Some(timeout) = timeout else { return std::future::pending().await };
    tokio::time::sleep(timeout).await;
    timeout
}
