//! Sessions of the streaming server over pods: an exec, an attach, a pod's ports. Each begins when its client
//! connects to the URL, and carries bytes between the client's channels and the process's streams.

use async_trait::async_trait;
use runtime_pieces::Piece;
use runtime_pod::{AttachRequest, PodError, Pods, ProcessEnd, ProcessOutput, ProcessStreams};
use runtime_spec::{ExecSpec, StartFailure};
use runtime_streaming::{Channels, Command, Forward, Outcome, in_own_task};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::feed::feed;

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
    let finishing = async {
        let (stdout, stderr) = (in_own_task(copy(stdout, to_stdout)), in_own_task(copy(stderr, to_stderr)));
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
    feeding.spawn(feed(input, from_client, leaves));
    if attached {
        // The end of a container's input may come after its session's.
        feeding.detach_all();
    }
    tokio::select! {
        outcome = &mut finishing => return outcome,
        _ = left => {}
    }
    // The client has gone. An exec ends with it, and the rest of its output is dropped. An attached client
    // only detaches.
    if attached {
        return Outcome::Done;
    }
    let (outcome, ()) = tokio::join!(finishing, end.client_gone());
    outcome
}

async fn copy(
    output: Option<ProcessOutput>,
    mut to_client: Option<mpsc::Sender<Piece>>,
) -> Result<(), PodError> {
    let Some(mut output) = output else { return Ok(()) };
    while let Some(piece) = output.next().await? {
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
