//! What is kept of an interface when its VM is saved. The tap is the network's affair.

use serde::{Deserialize, Serialize};

/// An interface's state: what the driver was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetState {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u16,
}
