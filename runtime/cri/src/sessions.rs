//! Sessions of the streaming server over pods: an exec, an attach, a pod's ports. Each begins when its client
//! connects to the URL, and carries bytes between the client's channels and the process's streams.

use std::time::Duration;

use async_trait::async_trait;
use runtime_pieces::Piece;
use runtime_pod::{AttachRequest, PodError, Pods, ProcessInput, ProcessOutput, ProcessStreams};
use runtime_spec::{ExecSpec, StartFailure};
use runtime_streaming::{Channels, Command, Forward, Input, Outcome, in_own_task};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// How long a process may take no input before the client's presence is checked, and how long after the
/// client has gone.
const STALLED: Duration = Duration::from_secs(2);

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
}

#[async_trait]
impl Forward for Ports {
    async fn forward(&self, port: u16, connection: DuplexStream) -> Result<(), String> {
        self.pods.forward(&self.pod_id, port, connection).await.map_err(|error| error.chain())
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
    let feeding = feed(input, from_client);
    tokio::pin!(finishing, feeding);
    tokio::select! {
        outcome = &mut finishing => return outcome,
        () = &mut feeding => {}
    }
    // The client has gone. An exec ends with it, and the rest of its output is dropped. An attached client
    // only detaches.
    let leaves = matches!(end, runtime_pod::ProcessEnd::Container(_));
    if leaves {
        return Outcome::Done;
    }
    let (outcome, ()) = tokio::join!(finishing, end.client_gone());
    outcome
}

/// Feeds input until the client has gone. A process that takes no more input loses the rest.
async fn feed(mut input: Option<ProcessInput>, mut from_client: mpsc::Receiver<Input>) {
    while let Some(said) = from_client.recv().await {
        let Some(process) = &mut input else { continue };
        let passing = async {
            match said {
                Input::Bytes(bytes) => process.write(&bytes).await,
                Input::Resize(size) => process.resize(size.columns, size.rows).await,
                Input::End => process.end().await,
            }
        };
        let taken = tokio::select! {
            taken = passing => taken,
            // The process is not reading now, so it would not take later input either.
            () = given_up(&from_client) => return,
        };
        if let Err(error) = taken {
            tracing::debug!(%error, "a process takes no more input");
            input = None;
        }
    }
    // A client that has gone sends no more input either.
    if let Some(process) = &mut input {
        let _ = process.end().await;
    }
}

/// Waits until the client has gone, and a while longer: a slow process may still take the last input.
async fn given_up(from_client: &mpsc::Receiver<Input>) {
    loop {
        let gone = from_client.is_closed();
        tokio::time::sleep(STALLED).await;
        if gone {
            return;
        }
    }
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
