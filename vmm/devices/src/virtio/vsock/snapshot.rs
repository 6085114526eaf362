//! The state of a vsock device in a saved VM.
//!
//! Open connections are not kept, because their other ends are other programs' sockets. A restored guest
//! learns that its connections are gone.

use serde::{Deserialize, Serialize};

use super::table::HOST_PORT_FIRST;

/// The device beyond its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VsockSnapshot {
    /// Host port of the next host program. The count continues, so no new connection has the ports of one the
    /// guest still assumes open.
    pub(super) next_host_port: u32,
    /// The driver was running, so it must drop its connections.
    pub(super) transport_reset: bool,
}

impl Default for VsockSnapshot {
    fn default() -> VsockSnapshot {
        VsockSnapshot { next_host_port: HOST_PORT_FIRST, transport_reset: false }
    }
}
