//! Bounds on what one image may bring. Owns numbers only; whoever reads foreign bytes checks them.

use std::time::Duration;

/// Most layers of one image: all their files, and the image's own, are sent to a VMM with one message, and other runtimes
/// stack no more either.
pub(crate) const LAYERS_MAX: usize = 127;

/// Bounds on what one image may bring. No honest image is likely to reach one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a manifest or index (registries refuse more than 4 MiB, too).
    pub manifest_bytes: u64,
    /// Bytes of a config; it is held in memory.
    pub config_bytes: u64,
    /// Compressed bytes of one layer.
    pub layer_bytes: u64,
    /// Uncompressed bytes of all layers of an image together: the most that a decompression bomb can cost.
    pub unpacked_bytes: u64,
    /// Layers of one image.
    pub layers: usize,
    /// Most time between two pieces of one answer.
    pub silence: Duration,
    /// The time spent waiting for a host in which it has to send [`Limits::pace_bytes`] of a blob.
    pub pace: Duration,
    /// Fewest bytes that a host sends in that time. A thread and the blob's lock are held all the while.
    pub pace_bytes: u64,
    /// The time until a question is asked again that nobody has answered; it doubles each time.
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
