//! The offset of the guest's clock, with its error. Pure.

/// Messages from the host for one measure.
const MESSAGES: usize = 8;
/// Error of a measure by messages, in nanoseconds: the longest travel time of the fastest message.
pub(super) const MESSAGE_ERROR_NS: i64 = 20_000_000;

/// The host's clock less the guest's, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) ns: i64,
    /// Bound of the distance from the true offset.
    pub(super) error_ns: i64,
}

impl Offset {
    /// The offset from one reading of the host's clock between two readings of the guest's.
    pub(super) fn between(before: i64, host: i64, after: i64) -> Offset {
        let error_ns = after.saturating_sub(before).max(0) / 2;
        Offset { ns: host.saturating_sub(before.saturating_add(error_ns)), error_ns }
    }
}

/// The host's times received in messages. Each is outdated by its message's travel time, so the true offset
/// is at least the largest observed one. More messages bring it closer.
#[derive(Debug, Default)]
pub(super) struct Messages {
    count: usize,
    largest_ns: i64,
}

impl Messages {
    /// Counts one message. Returns a measure once there are enough, and starts over.
    pub(super) fn heard(&mut self, host_ns: i64, guest_ns: i64) -> Option<Offset> {
        let offset_ns = host_ns.saturating_sub(guest_ns);
        self.largest_ns = if self.count == 0 { offset_ns } else { self.largest_ns.max(offset_ns) };
        self.count += 1;
        if self.count < MESSAGES {
            return None;
        }
        let ns = std::mem::take(self).largest_ns;
        Some(Offset { ns, error_ns: MESSAGE_ERROR_NS })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(now in 0i64..i64::MAX / 2, offset in -(1i64 << 60)..1 << 60,
            to in 0i64..1_000_000, back in 0i64..1_000_000) {
            let measured = Offset::between(now, now + to + offset, now + to + back);
            prop_assert!((measured.ns - offset).abs() <= measured.error_ns + 1, "{measured:?}");
        }

        #[test]
        fn the_fastest_message_counts(offset in -(1i64 << 60)..1 << 60,
            delays in proptest::collection::vec(0i64..10_000_000_000, MESSAGES)) {
            let mut messages = Messages::default();
            // Messages before the last measure must not matter.
            for _ in 0..2 {
                let mut measures = delays.iter().enumerate().map(|(at, delay)| {
                    let sent = i64::try_from(at).unwrap() * 1_000_000;
                    messages.heard(sent + offset, sent + delay)
                });
                let measured = measures.by_ref().find_map(|measure| measure).unwrap();
                prop_assert_eq!(measures.next(), None);
                prop_assert_eq!(measured.ns, offset - delays.iter().min().unwrap());
            }
        }
    }
}
