//! Whether a container has had its stop signal, shared by all its stops.
//!
//! A container gets the signal once, however often its stop is requested: to many programs a second one means
//! "at once". The driver keeps this on record, so that a later daemon does not repeat the signal either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a container has had its stop signal, or a stop is sending it. All clones are one.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    pub(crate) fn new(is_sent: bool) -> StopSignal {
        StopSignal(Arc::new(AtomicBool::new(is_sent)))
    }

    /// Claims to send the signal; `None` if it was sent, or another stop is sending it.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let was_free = !self.0.swap(true, Ordering::AcqRel);
        was_free.then(|| Claim { signal: self.clone(), may_be_heard: false })
    }
}

/// The only claim to send a container's stop signal. A dropped one can be made again, unless the container
/// may have heard the signal.
#[derive(Debug)]
pub(crate) struct Claim {
    signal: StopSignal,
    pub(crate) may_be_heard: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.may_be_heard {
            self.signal.0.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_claimed_again_only_if_it_was_certainly_not_heard() {
        let signal = StopSignal::new(false);
        let claim = signal.claim().unwrap();
        assert!(signal.clone().claim().is_none());
        drop(claim);
        signal.claim().unwrap().may_be_heard = true;
        assert!(signal.claim().is_none());
        assert!(StopSignal::new(true).claim().is_none());
    }
}
