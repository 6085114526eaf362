//! Serves the host's connections on the stream port. One frame names the stream, one frame answers whether it
//! opens, and then the connection carries the stream's bytes ([`crate::streams`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use proto_agent::agent::{StreamKind, StreamOpen, StreamOpened};
use proto_agent::frame::{self, FrameError, HEADER_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::host_listener::HostListener;
use crate::pod::Pod;
use crate::streams::{Forward, Output, ProcessOutput, Taken, Writer};

/// Most simultaneous stream connections: three for each process of a large pod.
const STREAMS_MAX: usize = 1024;
/// Timeout for the host's first frame.
const OPEN: Duration = Duration::from_secs(10);

/// Why a connection ended before or within its stream.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the connection failed")]
    Connection(#[from] std::io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("no stream was named within {} seconds", OPEN.as_secs())]
    Silent,
}

/// Serves the listener's connections, each in a separate task.
pub(crate) async fn run(listener: HostListener, pod: Arc<Pod>) {
    let room = Arc::new(Semaphore::new(STREAMS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let connection = listener.accept().await;
        let pod = Arc::clone(&pod);
        tokio::spawn(async move {
            if let Err(error) = serve(&pod, connection).await {
                tracing::debug!(%error, "a stream connection ended");
            }
            drop(place);
        });
    }
}

/// Serves one connection to its end. It never blocks.
async fn serve<S>(pod: &Pod, mut connection: S) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin + AsFd + Into<OwnedFd>,
{
    let open: StreamOpen =
        tokio::time::timeout(OPEN, read_frame(&mut connection)).await.map_err(|_| StreamError::Silent)??;
    let found = match open.kind.enum_value_or_default() {
        StreamKind::STREAM_KIND_PORT => Forward::connect(open.port).await.map(Opened::Port),
        kind => find(pod, &open, kind).map(Opened::Process),
    };
    let (stream, error) = match found {
        Ok(stream) => (Some(stream), String::new()),
        Err(error) => (None, error),
    };
    let opened = StreamOpened { error, ..Default::default() };
    let answered = connection.write_all(&frame::encode(&opened)?).await;
    match (stream, answered) {
        (Some(Opened::Process(ProcessStream::Direct(output))), answered) => {
            // The output is taken. If the host leaves before the answer, it has broken off, too.
            let outcome = match answered {
                Ok(()) => output.serve(connection.into()).await,
                Err(error) => Err(error),
            };
            pod.containers.output_served(&open.container_id, &open.exec_id, outcome.is_err());
            outcome?;
        }
        (_, Err(error)) => return Err(error.into()),
        (Some(Opened::Process(ProcessStream::Buffered(output))), Ok(())) => {
            output.serve(connection, open.offset).await?;
        }
        (Some(Opened::Process(ProcessStream::Input(input))), Ok(())) => input.serve(connection).await?,
        (Some(Opened::Port(port)), Ok(())) => port.serve(connection).await?,
        (None, Ok(())) => connection.shutdown().await?,
    }
    Ok(())
}

/// The stream of a connection.
enum Opened {
    Process(ProcessStream),
    Port(Forward),
}

/// A stream of a process, as a connection serves it.
enum ProcessStream {
    Buffered(Arc<Output>),
    Direct(Taken),
    Input(Writer),
}

/// Returns the process's stream, or the reason if it cannot be opened.
fn find(pod: &Pod, open: &StreamOpen, kind: StreamKind) -> Result<ProcessStream, String> {
    let process =
        pod.containers.process(&open.container_id, &open.exec_id).map_err(|error| error.to_string())?;
    let none = || format!("the process has no {kind:?} stream");
    match kind {
        StreamKind::STREAM_KIND_UNSPECIFIED | StreamKind::STREAM_KIND_PORT => {
            Err("no stream kind was given".into())
        }
        StreamKind::STREAM_KIND_STDIN => {
            let input = process.stdin.as_ref().ok_or_else(none)?;
            input.writer().map(ProcessStream::Input)
        }
        StreamKind::STREAM_KIND_STDOUT | StreamKind::STREAM_KIND_STDERR => {
            let output = match kind {
                StreamKind::STREAM_KIND_STDOUT => Some(&process.stdout),
                _ => process.stderr.as_ref(),
            };
            match output.ok_or_else(none)? {
                ProcessOutput::Direct(output) => output.take(open.offset).map(ProcessStream::Direct),
                ProcessOutput::Buffered(output) => {
                    output.resume(open.offset).map_err(|error| error.to_string())?;
                    Ok(ProcessStream::Buffered(Arc::clone(output)))
                }
            }
        }
    }
}

async fn read_frame<M, R>(reader: &mut R) -> Result<M, StreamError>
where
    M: protobuf::Message,
    R: AsyncRead + Unpin,
{
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await?;
    let mut body = vec![0; frame::body_bytes(header)?];
    reader.read_exact(&mut body).await?;
    Ok(frame::decode(&body)?)
}
