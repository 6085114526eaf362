//! Random numbers prefetched by the driver of the hardware generator. Each clone of a template would have the
//! same, so they are thrown away before the pod is configured. This runs concurrently with the earlier steps,
//! because a reader sleeps after each piece if others want its processor (`rng_dev_read`,
//! `drivers/char/hw_random/core.c`).

use std::fs::File;
use std::io::{self, Read};

use agent_container::launch::Failure;
use nix::errno::Errno;
use tokio::sync::OnceCell;

/// Most bytes held by the driver: prefetched ones and those left over by a reader, 64 bytes each
/// (`drivers/char/hw_random/virtio-rng.c` and `core.c`).
const BYTES: usize = 256;

/// The numbers could not be thrown away; a reader of the device would get them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot throw away prefetched random numbers: {0}")]
pub(crate) struct DiscardError(String);

/// State of the template's random numbers: thrown away or not yet.
#[derive(Debug, Default)]
pub(crate) struct FetchedAhead(OnceCell<Result<(), DiscardError>>);

impl FetchedAhead {
    /// Throws the numbers away, once for all callers.
    ///
    /// # Errors
    /// The device cannot be read. No later call tries again.
    pub(crate) async fn discard(&self) -> Result<(), DiscardError> {
        let discarding = async || match tokio::task::spawn_blocking(read).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(DiscardError(Failure::from_error(&error).message)),
            Err(panicked) => Err(DiscardError(panicked.to_string())),
        };
        self.0.get_or_init(discarding).await.clone()
    }
}

/// Reads all bytes held by the driver. A guest without the device has fetched none.
fn read() -> io::Result<()> {
    let absent = |error: &io::Error| {
        error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
    };
    let mut bytes = [0; BYTES];
    match File::open("/dev/hwrng").and_then(|mut device| device.read_exact(&mut bytes)) {
        Err(error) if !absent(&error) => Err(error),
        _ => Ok(()),
    }
}
