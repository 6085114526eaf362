//! Sessions of the streaming server over pods: an exec, an attach, a pod's ports. Each begins when its client
//! connects to the URL, and carries bytes between the client's channels and the process's streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use runtime_pieces::Piece;
use runtime_pod::{AttachRequest, PodError, Pods, ProcessEnd, ProcessOutput, ProcessStreams};
use runtime_spec::{ExecSpec, StartFailure};
use runtime_streaming::{Channels, Command, Forward, Outcome, in_own_task};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::feed::feed;

/// How long a container must be silent before the session of an attached client ends that has no more input.
/// Its last input may have an answer.
const SILENCE: Duration = Duration::from_secs(1);

/// How long to wait for this silence.
const SILENCE_WITHIN: Duration = Duration::from_secs(10);

/// A command. It starts when its client connects.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) pods: Pods,
    pub(crate) container_id: String,
    pub(crate) spec: ExecSpec,
}

#[async_trait]
impl Command for Exec {
    async fn run(self: Box<Self>, channels: Channels) -> Outcome {
        match self.pods.exec(&self.container_id, self.spec).await {
            Ok(streams) => carry(streams, channels).await,
            Err(error) => failed(&error),
        }
    }
}

/// A client to attach to a container.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) pods: Pods,
    pub(crate) container_id: String,
    pub(crate) request: AttachRequest,
}

#[async_trait]
impl Command for Attach {
    async fn run(self: Box<Self>, channels: Channels) -> Outcome {
        match self.pods.attach(&self.container_id, self.request).await {
            Ok(streams) => carry(streams, channels).await,
            Err(error) => failed(&error),
        }
    }
}

/// A pod's ports.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) pods: Pods,
    pub(crate) pod_id: String,
    /// The ports of the request, for a client that cannot name them.
    pub(crate) ports: Vec<u16>,
}

#[async_trait]
impl Forward for Ports {
    async fn forward(&self, port: u16, connection: DuplexStream) -> Result<(), String> {
        self.pods.forward(&self.pod_id, port, connection).await.map_err(|error| error.chain())
    }

    fn ports(&self) -> &[u16] {
        &self.ports
    }
}

/// Carries all streams to their ends. A process's output is read to its end even without the client: a
/// process without a reader would block.
async fn carry(streams: ProcessStreams, channels: Channels) -> Outcome {
    let ProcessStreams { input, stdout, stderr, end } = streams;
    let Channels { input: from_client, stdout: to_stdout, stderr: to_stderr } = channels;
    let pieces = Arc::new(AtomicUsize::new(0));
    let finishing = async {
        let stdout = in_own_task(copy(stdout, to_stdout, pieces.clone()));
        let stderr = in_own_task(copy(stderr, to_stderr, pieces.clone()));
        let outputs = async { tokio::try_join!(stdout, stderr) };
        // The code is sent after the last byte. An interrupted output ends the session at once.
        match tokio::try_join!(outputs, end.wait()) {
            Ok((_, Some(code))) => Outcome::Exited(code),
            Ok((_, None)) => Outcome::Done,
            Err(error) => failed(&error),
        }
    };
    tokio::pin!(finishing);
    let (leaves, left) = oneshot::channel();
    let attached = matches!(end, ProcessEnd::Container(_));
    let mut feeding = JoinSet::new();
    let outlives = attached && input.as_ref().is_some_and(|input| !input.ends());
    feeding.spawn(feed(input, outlives, from_client, leaves));
    if attached {
        // The end of a container's input may come after its session's.
        feeding.detach_all();
    }
    let left = tokio::select! {
        outcome = &mut finishing => return outcome,
        left = left => left,
    };
    if left.is_ok() {
        // The client has no more input for a process that goes on. Its session ends as with containerd, but
        // not before the answer.
        return tokio::select! {
            outcome = &mut finishing => outcome,
            () = silence(&pieces) => Outcome::Done,
        };
    }
    // The client has gone. An exec ends with it, and the rest of its output is dropped. An attached client
    // only detaches.
    if attached {
        return Outcome::Done;
    }
    let (outcome, ()) = tokio::join!(finishing, end.client_gone());
    outcome
}

/// Waits for a silence of the output, but not for ever.
async fn silence(pieces: &AtomicUsize) {
    let silence = async {
        loop {
            let before = pieces.load(Ordering::Relaxed);
            tokio::time::sleep(SILENCE).await;
            if pieces.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SILENCE_WITHIN, silence).await;
}

/// Copies an output to the client, and counts its pieces.
async fn copy(
    output: Option<ProcessOutput>,
    mut to_client: Option<mpsc::Sender<Piece>>,
    pieces: Arc<AtomicUsize>,
) -> Result<(), PodError> {
    let Some(mut output) = output else { return Ok(()) };
    while let Some(piece) = output.next().await? {
        pieces.fetch_add(1, Ordering::Relaxed);
        if let Some(client) = &to_client
            && client.send(piece).await.is_err()
        {
            to_client = None;
        }
    }
    Ok(())
}

/// The outcome of a failed session. If a program cannot be executed, the cause is named for the client.
fn failed(error: &PodError) -> Outcome {
    Outcome::Failed { text: error.chain(), cause: error.start_failure().map(StartFailure::name) }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_without_input_lasts_until_its_output_is_silent_and_not_for_ever() {
        for (number, seconds) in [(0, 1), (3, 4), (1000, 10)] {
            let pieces = AtomicUsize::new(0);
            let output = async {
                for _ in 0..number {
                    sleep(SILENCE * 9 / 10).await;
                    pieces.fetch_add(1, Ordering::Relaxed);
                }
                std::future::pending::<()>().await;
            };
            let begun = Instant::now();
            tokio::select! {
                () = output => {}
                () = silence(&pieces) => {}
            }
            assert_eq!(begun.elapsed().as_secs(), seconds, "{number} pieces");
        }
    }
}
