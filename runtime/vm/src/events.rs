//! Destinations of a VMM's events, and how many it may send. They stay the same when the connection changes.

use std::sync::Arc;

use tokio::sync::watch;

use crate::allowance::Allowance;
use crate::streams::Streams;

/// The events' destinations.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Streams opened by the guest.
    pub(crate) streams: Arc<Streams>,
    /// True once the guest has completed the last resize.
    pub(crate) resized: Arc<watch::Sender<bool>>,
    /// Number of the VM's disks waiting for space on the node.
    pub(crate) full_disks: Arc<watch::Sender<u32>>,
    /// What the VMM may still send without a request.
    pub(crate) allowance: Arc<Allowance>,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events {
            streams: Arc::default(),
            resized: Arc::new(watch::Sender::new(false)),
            full_disks: Arc::new(watch::Sender::new(0)),
            allowance: Arc::new(Allowance::new()),
        }
    }
}
