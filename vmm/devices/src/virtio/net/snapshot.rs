//! The state of an interface in a saved VM. The tap stays with the pod's network.

use serde::{Deserialize, Serialize};

/// The settings of an interface, as the driver read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetSnapshot {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u16,
}
