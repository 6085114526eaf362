//! How far the guest's clock is off, and how well that is known. Pure.

/// Messages from the host for one measure.
const MESSAGES: usize = 8;
/// The error of a measure by messages, in nanoseconds: what the fastest of them may have taken on its way.
pub(super) const MESSAGE_ERROR_NS: i64 = 20_000_000;

/// The host's clock less the guest's, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) ns: i64,
    /// The true offset is this close.
    pub(super) error_ns: i64,
}

impl Offset {
    /// The offset by a reading of the host's clock, between two of the guest's.
    pub(super) fn between(before: i64, host: i64, after: i64) -> Offset {
        let error_ns = after.saturating_sub(before).max(0) / 2;
        Offset { ns: host.saturating_sub(before.saturating_add(error_ns)), error_ns }
    }
}

/// The host's times that came in messages. Each is as old as its message took, so the offset is at least the largest that was
/// seen, and the more messages, the closer.
#[derive(Debug, Default)]
pub(super) struct Messages {
    count: usize,
    largest_ns: i64,
}

impl Messages {
    /// Counts one message; returns a measure when there are enough, and begins anew.
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
            // What was heard before must not matter.
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
