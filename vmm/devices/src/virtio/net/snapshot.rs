//! The state of an interface in a saved VM. The tap stays with the pod's network.

use serde::{Deserialize, Serialize};

use super::receive::ReceiveMode;

/// The settings of an interface, as the driver read them, and what the driver wishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetSnapshot {
    /// Ethernet address that the interface has after a reset.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u16,
    /// The frames that the driver wants.
    pub receive: ReceiveMode,
}
