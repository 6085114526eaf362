//! The guest kernels that a handler chooses from. Pure; the files are the daemon's.

use serde::{Deserialize, Serialize};

/// A kernel that a pod's guest boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// The kernel with what containers need and no more: it boots fastest and takes the least memory.
    #[default]
    Small,
    /// The small one with what a distribution's kernel has besides: file systems, tunnels, legacy packet filters, probes.
    Full,
}

impl Kernel {
    /// Memory in bytes that the kernel takes beyond what the small one does.
    pub(crate) const fn more_than_small(self) -> u64 {
        match self {
            Kernel::Small => 0,
            Kernel::Full => FULL_MORE,
        }
    }
}

/// The full kernel's own code and data are larger, and the drivers that it has more of allocate at boot.
const FULL_MORE: u64 = 24 << 20;
