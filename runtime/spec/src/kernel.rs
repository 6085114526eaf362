//! The guest kernels available to a handler. Pure; the daemon has the files.

use serde::{Deserialize, Serialize};

/// The kernel booted by a pod's guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// The kernel with only the features needed by containers. It boots fastest and uses the least memory.
    #[default]
    Small,
    /// The small one with a distribution kernel's extras: file systems, tunnels, legacy packet filters,
    /// probes.
    Full,
}

impl Kernel {
    /// Memory in bytes used beyond the small kernel's.
    pub(crate) const fn more_than_small(self) -> u64 {
        match self {
            Kernel::Small => 0,
            Kernel::Full => FULL_MORE,
        }
    }
}

/// The full kernel's own code and data are larger, and its additional drivers allocate at boot.
const FULL_MORE: u64 = 24 << 20;
