//! Limits for one image. Owns only the numbers. The readers of untrusted bytes check them.

use std::time::Duration;

/// Most layers of one image. All their files, and the image's own, go to a VMM in one message. Other runtimes
/// have the same limit.
pub(crate) const LAYERS_MAX: usize = 127;

/// Limits for one image. No honest image is likely to reach one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a manifest or index (registries refuse more than 4 MiB, too).
    pub manifest_bytes: u64,
    /// Bytes of a config; it is held in memory.
    pub config_bytes: u64,
    /// Compressed bytes of one layer.
    pub layer_bytes: u64,
    /// Uncompressed bytes of all layers of an image together: the most a decompression bomb can cost.
    pub unpacked_bytes: u64,
    /// Layers of one image.
    pub layers: usize,
    /// Most time between two pieces of one answer.
    pub silence: Duration,
    /// The time window for the minimum speed: while waiting this long, a host has to send
    /// [`Limits::pace_bytes`] of a blob.
    pub pace: Duration,
    /// Fewest bytes from a host in this window. A thread and the blob's lock are held the whole time.
    pub pace_bytes: u64,
    /// The first delay before an unanswered request is repeated. It doubles each time.
    pub retry_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            manifest_bytes: 4 << 20,
            config_bytes: 8 << 20,
            layer_bytes: 32 << 30,
            unpacked_bytes: 64 << 30,
            layers: LAYERS_MAX,
            silence: Duration::from_secs(60),
            pace: Duration::from_secs(300),
            pace_bytes: 256 << 10,
            retry_wait: Duration::from_millis(500),
        }
    }
}
