//! The state of a vsock device in a saved VM.
//!
//! Open connections are not kept: their other ends are other programs' sockets. A guest that is restored from the
//! state learns that its connections are gone.

use serde::{Deserialize, Serialize};

use super::table::HOST_PORT_FIRST;

/// The device beyond its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VsockSnapshot {
    /// Host port that the next host program gets. The count goes on where it was, so that no new connection has the
    /// ports of one that the guest still believes in.
    pub(super) next_host_port: u32,
    /// The driver was running: it must drop its connections.
    pub(super) transport_reset: bool,
}

impl Default for VsockSnapshot {
    fn default() -> VsockSnapshot {
        VsockSnapshot { next_host_port: HOST_PORT_FIRST, transport_reset: false }
    }
}
