//! Sets the tap's offloads to the driver's choice. Setting them takes a lock of the node's whole network
//! (RTNL), and a guest can reset its interface in a loop. So offloads already set stay unchanged, and changes
//! have a rate limit.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::tap::{TapSettings, offload_bits};
use crate::virtio::allowance::Allowance;

/// Changes in a row; one more after each second. A driver makes one when it starts.
pub(super) const CHANGES_IN_A_ROW: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct TapOffloads {
    set: Option<u32>,
    changes: Allowance,
}

impl TapOffloads {
    /// Starts with unknown offloads.
    pub(super) fn new() -> TapOffloads {
        TapOffloads { set: None, changes: Allowance::new(CHANGES_IN_A_ROW) }
    }

    /// Sets the offloads for a driver with these features.
    ///
    /// # Errors
    /// The kernel refuses them, or the driver has changed them too often.
    pub(super) fn set(
        &mut self,
        settings: &dyn TapSettings,
        tap: BorrowedFd<'_>,
        features: u64,
        now: Instant,
    ) -> io::Result<()> {
        let wanted = offload_bits(features);
        if self.set == Some(wanted) {
            return Ok(());
        }
        if !self.changes.take(now) {
            return Err(io::Error::other("the driver changes them too often"));
        }
        settings.offload(tap, wanted)?;
        self.set = Some(wanted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::Mutex;
    use std::time::Duration;

    use virtio_bindings::virtio_net as spec;

    use super::super::receive::Filter;
    use super::*;

    #[derive(Debug, Default)]
    struct Settings {
        offloads: Mutex<Vec<u32>>,
        refuses: bool,
    }

    impl TapSettings for Settings {
        fn offload(&self, _tap: BorrowedFd<'_>, offloads: u32) -> io::Result<()> {
            self.offloads.lock().unwrap().push(offloads);
            if self.refuses { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
        }

        fn filter(&self, _tap: BorrowedFd<'_>, _filter: Option<&Filter>) -> io::Result<()> {
            Ok(())
        }
    }

    const CSUM: u64 = 1 << spec::VIRTIO_NET_F_GUEST_CSUM;

    #[test]
    fn a_driver_that_begins_again_leaves_the_tap_as_it_is() {
        let (settings, tap, now) = (Settings::default(), std::io::stdin(), Instant::now());
        let mut offloads = TapOffloads::new();
        for _ in 0..1000 {
            offloads.set(&settings, tap.as_fd(), CSUM, now).unwrap();
        }
        offloads.set(&settings, tap.as_fd(), 0, now).unwrap();
        assert_eq!(*settings.offloads.lock().unwrap(), [1, 0]);
    }

    #[test]
    fn a_driver_that_changes_them_without_end_is_refused() {
        let (settings, tap, now) = (Settings::default(), std::io::stdin(), Instant::now());
        let mut offloads = TapOffloads::new();
        let mut flip = |number: u32, now| {
            offloads.set(&settings, tap.as_fd(), if number.is_multiple_of(2) { CSUM } else { 0 }, now).is_ok()
        };
        // Offloads already set always succeed.
        let refused = (0..1000).filter(|number| !flip(*number, now)).count();
        assert_eq!(refused, (1000 - CHANGES_IN_A_ROW as usize) / 2);
        // The last change was to none.
        assert!(flip(0, now + Duration::from_secs(1)));
        assert!(!flip(1, now + Duration::from_secs(1)));
        assert_eq!(settings.offloads.lock().unwrap().len(), CHANGES_IN_A_ROW as usize + 1);
    }

    #[test]
    fn offloads_that_the_kernel_refuses_are_tried_again() {
        let settings = Settings { refuses: true, ..Settings::default() };
        let (tap, now) = (std::io::stdin(), Instant::now());
        let mut offloads = TapOffloads::new();
        for _ in 0..2 {
            offloads.set(&settings, tap.as_fd(), CSUM, now).unwrap_err();
        }
        assert_eq!(settings.offloads.lock().unwrap().len(), 2);
    }
}
