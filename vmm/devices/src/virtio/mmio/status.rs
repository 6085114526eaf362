//! The device status register (virtio 1.2, sections 2.1 and 3.1.1). Pure: decides, never acts.
//!
//! ```text
//!              ACKNOWLEDGE      DRIVER        FEATURES_OK         DRIVER_OK
//!   ┌───────┐──────────────> ─────────> ─────────────────> ───────────────────> ┌──────┐
//!   │ reset │   noticed       driving    features agreed    (device activated)   │ live │
//!   └───────┘<────────────────────────────────────────────────────────────────── └──┬───┘
//!       ▲                 driver writes 0, from anywhere                            │ activation fails
//!       │                                                                           ▼
//!       └────────────────────────────── FAILED, DEVICE_NEEDS_RESET <────────────────┘
//! ```
//!
//! A step without its predecessor is refused: the bit stays clear, and the driver can see it by reading the
//! register back. Only a reset clears bits.

use serde::{Deserialize, Serialize};
use virtio_bindings::virtio_config as config;

/// The driver has seen the device.
pub(super) const ACKNOWLEDGE: u8 = config::VIRTIO_CONFIG_S_ACKNOWLEDGE as u8;
/// The driver knows how to drive it.
pub(super) const DRIVER: u8 = config::VIRTIO_CONFIG_S_DRIVER as u8;
/// Both sides agree on the features.
pub(super) const FEATURES_OK: u8 = config::VIRTIO_CONFIG_S_FEATURES_OK as u8;
/// The queues are set up; the device is live.
pub(super) const DRIVER_OK: u8 = config::VIRTIO_CONFIG_S_DRIVER_OK as u8;
/// The device gave up; only a reset helps. Set by the device alone.
pub(super) const NEEDS_RESET: u8 = config::VIRTIO_CONFIG_S_NEEDS_RESET as u8;
/// The driver gave up.
pub(super) const FAILED: u8 = config::VIRTIO_CONFIG_S_FAILED as u8;

/// The driver's required steps, in order.
const STEPS: [u8; 4] = [ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK];

/// Bit 32, VIRTIO_F_VERSION_1: this transport's layout.
pub(super) const VERSION_1: u64 = 1 << config::VIRTIO_F_VERSION_1;

/// The transport's action after a write to the status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing beyond the bits just set.
    Nothing,
    /// Take everything back to the start.
    Reset,
    /// DRIVER_OK was set just now: start the device.
    Activate,
}

/// The status register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Status(u8);

impl Status {
    /// Returns the value read by the driver.
    pub(super) fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if all of `bits` are set.
    pub(super) fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// Returns true if neither side has given up.
    fn healthy(self) -> bool {
        self.0 & (FAILED | NEEDS_RESET) == 0
    }

    /// Returns true if features may be chosen.
    pub(super) fn negotiating(self) -> bool {
        self.healthy() && self.has(DRIVER) && !self.has(FEATURES_OK)
    }

    /// Returns true if queues may be set up.
    pub(super) fn queues_open(self) -> bool {
        self.healthy() && self.has(FEATURES_OK) && !self.has(DRIVER_OK)
    }

    /// Sets the bit of a device that stopped serving.
    pub(super) fn set_needs_reset(&mut self) {
        self.0 |= NEEDS_RESET;
    }

    /// Handles the driver's write of `value`, with `chosen` of the `offered` features.
    pub(super) fn write(&mut self, value: u32, offered: u64, chosen: u64) -> Step {
        if value == 0 {
            *self = Status::default();
            return Step::Reset;
        }
        let Ok(value) = u8::try_from(value) else { return Step::Nothing };
        if value & FAILED != 0 {
            self.0 |= FAILED;
        }
        let clears = self.0 & !NEEDS_RESET & !value != 0;
        if !self.healthy() || clears {
            return Step::Nothing;
        }
        let mut step = Step::Nothing;
        for bit in STEPS {
            if self.has(bit) {
                continue;
            }
            let agreed = bit != FEATURES_OK || (chosen & !offered == 0 && chosen & VERSION_1 != 0);
            if value & bit == 0 || !agreed {
                break;
            }
            self.0 |= bit;
            if bit == DRIVER_OK {
                step = Step::Activate;
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: u8 = ACKNOWLEDGE | DRIVER | FEATURES_OK;

    fn after(values: &[u8], chosen: u64) -> (Status, Step) {
        let mut status = Status::default();
        let mut step = Step::Nothing;
        for value in values {
            step = status.write(u32::from(*value), VERSION_1 | 1, chosen);
        }
        (status, step)
    }

    #[test]
    fn the_steps_in_order_activate() {
        let (status, step) = after(&[1, 3, AGREED, AGREED | DRIVER_OK], VERSION_1);
        assert_eq!((status.bits(), step), (AGREED | DRIVER_OK, Step::Activate));
    }

    #[test]
    fn features_are_refused_without_version_1_or_beyond_the_offer() {
        assert_eq!(after(&[1, 3, AGREED], 1).0.bits(), ACKNOWLEDGE | DRIVER);
        assert_eq!(after(&[1, 3, AGREED], VERSION_1 | 2).0.bits(), ACKNOWLEDGE | DRIVER);
    }

    #[test]
    fn a_skipped_step_is_refused() {
        assert_eq!(after(&[DRIVER], VERSION_1).0.bits(), 0);
        assert_eq!(after(&[1, 3, ACKNOWLEDGE | DRIVER | DRIVER_OK], VERSION_1).0.bits(), 3);
    }

    #[test]
    fn a_bit_is_only_cleared_by_a_reset() {
        let (status, _) = after(&[1, 3, AGREED, ACKNOWLEDGE], VERSION_1);
        assert_eq!(status.bits(), AGREED);
        assert_eq!(after(&[1, 3, AGREED, 0], VERSION_1), (Status::default(), Step::Reset));
    }

    #[test]
    fn after_a_failure_only_a_reset_helps() {
        let (mut status, _) = after(&[1, 3, FAILED | 3], VERSION_1);
        let step = status.write(u32::from(FAILED | AGREED | DRIVER_OK), VERSION_1, VERSION_1);
        assert_eq!((status.bits(), step), (FAILED | 3, Step::Nothing));
        assert_eq!(status.write(0, 0, 0), Step::Reset);
    }

    #[test]
    fn the_driver_cannot_set_needs_reset_nor_high_bits() {
        assert_eq!(after(&[NEEDS_RESET | 1], VERSION_1).0.bits(), 1);
        let mut status = Status::default();
        assert_eq!(status.write(0x101, VERSION_1, VERSION_1), Step::Nothing);
        assert_eq!(status.bits(), 0);
    }
}
