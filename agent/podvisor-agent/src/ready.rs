//! Reports readiness once, as a frame on a stream from the guest to the host. The host does not poll for it.

use nix::time::ClockId;
use proto_agent::agent::AgentReady;
use proto_agent::{frame, port, version};
use tokio::io::AsyncWriteExt;
use tokio_vsock::{VMADDR_CID_HOST, VsockAddr, VsockStream};

/// Why readiness could not be reported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadyError {
    #[error("cannot dial the host's port {}", port::READY)]
    Dial(#[source] std::io::Error),
    #[error("cannot send the ready frame")]
    Send(#[source] std::io::Error),
    #[error(transparent)]
    Frame(#[from] frame::FrameError),
}

/// Reports to the host: both ports are served.
pub(crate) async fn push(entered_ns: u64) -> Result<(), ReadyError> {
    let address = VsockAddr::new(VMADDR_CID_HOST, port::READY);
    let mut stream = VsockStream::connect(address).await.map_err(ReadyError::Dial)?;
    let message = AgentReady {
        agent_version: env!("CARGO_PKG_VERSION").into(),
        kernel_release: nix::sys::utsname::uname()
            .map(|names| names.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        entered_ns,
        ready_ns: monotonic_ns(),
        protocol_oldest: version::OLDEST,
        protocol_newest: version::NEWEST,
        ..Default::default()
    };
    stream.write_all(&frame::encode(&message)?).await.map_err(ReadyError::Send)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(ReadyError::Send)
}

/// Nanoseconds since the guest's kernel started.
pub(crate) fn monotonic_ns() -> u64 {
    let now = ClockId::CLOCK_MONOTONIC.now().map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
