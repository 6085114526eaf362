//! The form of the packets: a few numbers, and a FUSE message behind them. Pure.

/// Most bytes of data in a message: the longest value of an attribute, and the longest listing. Longer
/// reads and writes are cut in pieces.
pub(in crate::virtio::fs) const DATA_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a request: data, and a page for the headers.
pub(in crate::virtio::fs) const REQUEST_BYTES_MAX: usize = DATA_BYTES_MAX + 4096;

/// Most bytes of an answer: its header and data.
pub(in crate::virtio::fs) const ANSWER_BYTES_MAX: usize = DATA_BYTES_MAX + 16;

/// Most supplementary groups in a list, as many as the daemon names.
pub(super) const GROUPS_MAX: usize = 256;

/// Bytes before the message, in both directions.
pub(super) const HEAD_BYTES: usize = 12;

/// A request of the VMM. The message follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A FUSE request, with room for so many bytes in its answer.
    Request {
        room: u32,
        /// The opened file is wanted too.
        lend: bool,
    },
    /// A FUSE request without an answer.
    Notice,
    /// A FUSE request for a lock. If another holds it, the owner waits or not.
    Lock { waits: bool },
    /// Supplementary groups, of 32 bits each, for all later messages on this channel.
    Groups,
    /// Release everything held by the driver.
    Afresh,
}

/// The share's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The FUSE answer follows.
    Answered,
    /// The request made no sense, or its answer had no place.
    Nothing,
    /// Done, or this error number.
    Done { error: i32 },
}

/// The share's answer. It also says if a lock was released meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    pub(super) freed: bool,
}

/// Error numbers end here (linux/err.h, MAX_ERRNO).
const ERROR_MAX: i32 = 4095;

impl Call {
    pub(super) fn head(self) -> [u8; HEAD_BYTES] {
        words(match self {
            Call::Request { room, lend } => [1, room, lend.into()],
            Call::Notice => [2, 0, 0],
            Call::Lock { waits } => [3, waits.into(), 0],
            Call::Groups => [4, 0, 0],
            Call::Afresh => [5, 0, 0],
        })
    }

    /// Reads the head of a request. `None` if no VMM sends it.
    pub(super) fn read(head: [u8; HEAD_BYTES]) -> Option<Call> {
        Some(match numbers(head) {
            [1, room, lend @ 0..=1] if room as usize <= ANSWER_BYTES_MAX => {
                Call::Request { room, lend: lend == 1 }
            }
            [2, 0, 0] => Call::Notice,
            [3, waits @ 0..=1, 0] => Call::Lock { waits: waits == 1 },
            [4, 0, 0] => Call::Groups,
            [5, 0, 0] => Call::Afresh,
            _ => return None,
        })
    }
}

impl Reply {
    pub(super) fn head(self) -> [u8; HEAD_BYTES] {
        let (kind, error) = match self.outcome {
            Outcome::Answered => (1, 0),
            Outcome::Nothing => (2, 0),
            Outcome::Done { error } => (3, error.cast_unsigned()),
        };
        words([kind, error, self.freed.into()])
    }

    /// Reads the head of an answer. `None` if no share sends it.
    pub(super) fn read(head: [u8; HEAD_BYTES]) -> Option<Reply> {
        let [kind, error, freed @ 0..=1] = numbers(head) else { return None };
        let outcome = match (kind, error.cast_signed()) {
            (1, 0) => Outcome::Answered,
            (2, 0) => Outcome::Nothing,
            (3, error @ 0..=ERROR_MAX) => Outcome::Done { error },
            _ => return None,
        };
        Some(Reply { outcome, freed: freed == 1 })
    }
}

fn words(numbers: [u32; 3]) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn numbers(bytes: [u8; HEAD_BYTES]) -> [u32; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_one_side_says_the_other_reads() {
        let room = ANSWER_BYTES_MAX as u32;
        for call in [
            Call::Request { room, lend: true },
            Call::Request { room: 0, lend: false },
            Call::Notice,
            Call::Lock { waits: true },
            Call::Lock { waits: false },
            Call::Groups,
            Call::Afresh,
        ] {
            assert_eq!(Call::read(call.head()), Some(call));
        }
        assert_eq!(Call::read(Call::Request { room: room + 1, lend: false }.head()), None);
        for outcome in [Outcome::Answered, Outcome::Nothing, Outcome::Done { error: libc::EIO }] {
            for freed in [false, true] {
                let reply = Reply { outcome, freed };
                assert_eq!(Reply::read(reply.head()), Some(reply));
            }
        }
        assert_eq!(Reply::read(words([3, ERROR_MAX as u32 + 1, 0])), None);
    }

    proptest! {
        #[test]
        fn there_is_one_form_of_each_packet(head in any::<[u8; HEAD_BYTES]>()) {
            if let Some(call) = Call::read(head) {
                prop_assert_eq!(call.head(), head);
            }
            if let Some(reply) = Reply::read(head) {
                prop_assert_eq!(reply.head(), head);
            }
        }
    }
}
