//! Meets the host on the stream port: one frame says which stream, one frame says whether it opens, and
//! then the connection is the stream's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto_agent::agent::{StreamKind, StreamOpen, StreamOpened};
use proto_agent::frame::{self, FrameError, HEADER_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::pod::Pod;
use crate::streams::port::Port;
use crate::streams::{Outlet, ProcessStream};

/// How long the host may take for its first frame.
const OPEN: Duration = Duration::from_secs(10);

/// Why a connection ended before or within its stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("the connection failed")]
    Connection(#[from] std::io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("no stream was named within {} seconds", OPEN.as_secs())]
    Silent,
}

/// Serves one connection, which never blocks, to its end.
pub(crate) async fn serve<S>(pod: &Pod, mut connection: S) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin + Into<OwnedFd>,
{
    let open: StreamOpen =
        tokio::time::timeout(OPEN, read_frame(&mut connection)).await.map_err(|_| StreamError::Silent)??;
    let found = match open.kind.enum_value_or_default() {
        StreamKind::STREAM_KIND_PORT => Port::connect(open.port).await.map(Opened::Port),
        kind => find(pod, &open, kind).map(Opened::Process),
    };
    let (stream, error) = match found {
        Ok(stream) => (Some(stream), String::new()),
        Err(error) => (None, error),
    };
    let opened = StreamOpened { error, ..Default::default() };
    let told = connection.write_all(&frame::encode(&opened)?).await;
    match (stream, told) {
        (Some(Opened::Process(ProcessStream::Direct(output))), told) => {
            // It has been taken: a host that leaves before it hears so has broken off too.
            let outcome = match told {
                Ok(()) => output.serve(connection.into()).await,
                Err(error) => Err(error),
            };
            pod.containers.output_served(&open.container_id, &open.exec_id, outcome.is_err());
            outcome?;
        }
        (_, Err(error)) => return Err(error.into()),
        (Some(Opened::Process(ProcessStream::Kept(output))), Ok(())) => {
            output.serve(connection, open.offset).await?;
        }
        (Some(Opened::Process(ProcessStream::Input(input))), Ok(())) => input.serve(connection).await?,
        (Some(Opened::Port(port)), Ok(())) => port.serve(connection).await?,
        (None, Ok(())) => connection.shutdown().await?,
    }
    Ok(())
}

/// What a connection is for.
enum Opened {
    Process(ProcessStream),
    Port(Port),
}

/// The process's stream, or why it cannot be opened.
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
                Outlet::Direct(output) => output.take(open.offset).map(ProcessStream::Direct),
                Outlet::Kept(output) => {
                    output.resume(open.offset).map_err(|error| error.to_string())?;
                    Ok(ProcessStream::Kept(Arc::clone(output)))
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
