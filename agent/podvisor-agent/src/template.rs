//! An agent in a template. The VM is booted up to here and saved, and any number of pods' VMs continue from
//! here. Once a container runs, two of them must not share any secret or name.
//!
//! ```text
//!   boot ─> waits, reports it ─> (saved, restored) ─> woken with a seed ─> kernel reseeded ─> re-executed
//!                 ▲                                     │
//!                 └── no seed, or an unusable one ──────┘
//! ```
//!
//! The agent serves only the wake-up, and the kernel has no address, no connection and no other user. Another
//! execution of the agent serves the pod. Its addresses, hash seeds and all other random numbers are
//! therefore drawn after the kernel has its own seed. docs/decisions/pods.md lists the remaining state shared
//! by clones.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use agent_container::launch::Failure;
use agent_container::syscall;
use proto_agent::agent::Wake;
use proto_agent::frame::{self, HEADER_BYTES};
use proto_agent::{WAKE_SEED_BYTES_MIN, port};
use tokio::io::AsyncReadExt;

use crate::compiled_filter;
use crate::host_listener::HostListener;
use crate::pause::SELF;
use crate::ready;

/// Argument of the agent in a clone.
pub(crate) const RESTORED_ARGUMENT: &str = "restored";

/// Timeout for the host's message after it has connected.
const WOKEN_WITHIN: Duration = Duration::from_secs(10);

/// Why the agent cannot wait or continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("cannot have the kernel compile a packet filter")]
    Filter(#[source] io::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot listen on vsock port {}", port::WAKE)]
    Listen(#[source] io::Error),
    #[error("cannot execute the agent anew")]
    Execute(#[source] io::Error),
}

/// Why a wake-up failed.
#[derive(Debug, thiserror::Error)]
enum WakeError {
    #[error("the message did not come in time")]
    Deadline,
    #[error("the message cannot be read")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] frame::FrameError),
    #[error("a seed of {0} bytes, at least {WAKE_SEED_BYTES_MIN} are needed")]
    Seed(usize),
    #[error("cannot seed the random pool")]
    Pool(#[source] io::Error),
}

/// Waits until the host wakes the guest, and executes the agent again. `entered_ns` is the time of the
/// agent's start.
pub(crate) fn run(entered_ns: u64) -> Result<Infallible, TemplateError> {
    let filter = compiled_filter::hold().map_err(TemplateError::Filter)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(TemplateError::Runtime)?.block_on(wait(entered_ns))?;
    // The next execution holds the filter as its standard input, but never reads it.
    Err(TemplateError::Execute(Command::new(SELF).arg(RESTORED_ARGUMENT).stdin(filter).exec()))
}

async fn wait(entered_ns: u64) -> Result<(), TemplateError> {
    let listener = HostListener::bind(port::WAKE).map_err(TemplateError::Listen)?;
    if let Err(error) = ready::push(entered_ns).await {
        // If the VM was saved meanwhile, the host has already received the report.
        tracing::warn!(
            error = Failure::from_error(&error).message,
            "cannot report the template's readiness to the host"
        );
    }
    loop {
        let mut stream = listener.accept().await;
        let wake = tokio::time::timeout(WOKEN_WITHIN, read(&mut stream)).await;
        match wake.unwrap_or(Err(WakeError::Deadline)).and_then(|wake| reseed(&wake)) {
            Ok(()) => return Ok(()),
            // The host decides how often to try, and gives up the guest soon.
            Err(error) => tracing::warn!(error = Failure::from_error(&error).message, "not woken"),
        }
    }
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<Wake, WakeError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let mut body = vec![0; frame::body_bytes(header)?];
    stream.read_exact(&mut body).await?;
    Ok(frame::decode(&body)?)
}

/// Makes the kernel's random numbers unique to this clone.
fn reseed(wake: &Wake) -> Result<(), WakeError> {
    let seed = seed(wake)?;
    let random = File::options().write(true).open("/dev/urandom").map_err(WakeError::Pool)?;
    syscall::add_entropy(random.as_fd(), seed).map_err(WakeError::Pool)
}

fn seed(wake: &Wake) -> Result<&[u8], WakeError> {
    let seed = wake.random_seed.as_slice();
    if seed.len() < WAKE_SEED_BYTES_MIN { Err(WakeError::Seed(seed.len())) } else { Ok(seed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(bytes: usize) -> Wake {
        Wake { random_seed: vec![7; bytes], ..Default::default() }
    }

    #[tokio::test]
    async fn a_message_is_read_whole_or_not_at_all() {
        let frame = frame::encode(&wake(64)).unwrap();
        assert_eq!(read(&mut &frame[..]).await.unwrap(), wake(64));
        for end in 0..frame.len() {
            assert!(matches!(read(&mut &frame[..end]).await, Err(WakeError::Read(_))), "{end}");
        }
        let long = u32::MAX.to_le_bytes();
        assert!(matches!(read(&mut &long[..]).await, Err(WakeError::Frame(_))));
    }

    #[test]
    fn a_guest_is_not_woken_without_a_seed() {
        for bytes in [0, WAKE_SEED_BYTES_MIN - 1] {
            assert!(matches!(seed(&wake(bytes)), Err(WakeError::Seed(has)) if has == bytes));
        }
        assert_eq!(seed(&wake(64)).unwrap().len(), 64);
    }
}
