//! The state of an interface in a saved VM. The tap stays with the pod's network.

use serde::{Deserialize, Serialize};

use super::receive::ReceiveMode;

/// The settings of an interface, as read by the driver, and the driver's own settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetSnapshot {
    /// The interface's Ethernet address after a reset.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u16,
    /// The frames wanted by the driver.
    pub receive: ReceiveMode,
}
