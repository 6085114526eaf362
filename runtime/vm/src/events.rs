//! Where the events of a VMM go, whichever connection brings them.

use std::sync::Arc;

use tokio::sync::watch;

use crate::streams::Streams;

/// The events' destinations.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Streams that the guest opened.
    pub(crate) streams: Arc<Streams>,
    /// Whether the guest has taken what the last resize asked.
    pub(crate) resized: Arc<watch::Sender<bool>>,
    /// Number of the VM's disks that wait for room on the node.
    pub(crate) full_disks: Arc<watch::Sender<u32>>,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events {
            streams: Arc::default(),
            resized: Arc::new(watch::Sender::new(false)),
            full_disks: Arc::new(watch::Sender::new(0)),
        }
    }
}
