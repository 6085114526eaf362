//! How long killed containers are waited for, beyond the usual time, because their VM writes to the node's
//! disks. The last close of a block device writes all that the guest has kept of it. With the VM this data
//! would be lost.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Vm;

/// How long the stop of a pod waits in all for a VM that goes on with writing.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(600);

/// Least bytes between two looks.
const WRITTEN_BYTES: u64 = 1 << 20;

/// What the VM had written at the last look.
#[derive(Debug)]
pub(crate) struct Written {
    bytes: u64,
    until: Instant,
}

impl Written {
    /// Begins with a kill.
    pub(crate) fn begin(vm: &dyn Vm) -> Written {
        Written::until(vm, Instant::now() + WRITTEN_WITHIN)
    }

    /// Begins with a kill, with this time limit.
    pub(crate) fn until(vm: &dyn Vm, until: Instant) -> Written {
        Written { bytes: vm.written_bytes(), until }
    }

    /// The end of the next wait of this length, or of all waits if that is earlier.
    pub(crate) fn next_look(&self, wait: Duration) -> Instant {
        self.until.min(Instant::now() + wait)
    }

    /// Returns true if the VM has written much since the last look, and there is time left.
    pub(crate) fn goes_on(&mut self, vm: &dyn Vm) -> bool {
        let bytes = vm.written_bytes();
        let written = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        let goes_on = written >= WRITTEN_BYTES && Instant::now() < self.until;
        if goes_on {
            tracing::info!(
                vmm = vm.pid(),
                bytes = written,
                "killed containers have not ended; their VM writes to the node's disks"
            );
        }
        goes_on
    }
}
