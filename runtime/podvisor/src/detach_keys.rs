//! The keys to leave a session while its container goes on: ctrl-p ctrl-q, as in `docker`. Pure.
//!
//! ```text
//!   typing ──ctrl-p──▶ held ──ctrl-q──▶ left
//!      ▲                │
//!      └── another key ─┘   the ctrl-p is passed on first
//! ```

const CTRL_P: u8 = 0x10;
const CTRL_Q: u8 = 0x11;

/// The state of the keys between two reads of the terminal.
#[derive(Debug, Default)]
pub(crate) struct DetachKeys {
    held: bool,
}

impl DetachKeys {
    /// Returns the bytes to pass on, and whether the keys were pressed. Bytes behind the keys are dropped.
    pub(crate) fn typed(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            match (std::mem::take(&mut self.held), byte) {
                (true, CTRL_Q) => return (passed, true),
                (true, CTRL_P) => {
                    passed.push(CTRL_P);
                    self.held = true;
                }
                (true, _) => passed.extend([CTRL_P, byte]),
                (false, CTRL_P) => self.held = true,
                (false, _) => passed.push(byte),
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_keys_leave_in_one_piece_or_in_two() {
        assert_eq!(DetachKeys::default().typed(b"ls\n\x10\x11rest"), (b"ls\n".to_vec(), true));
        let mut keys = DetachKeys::default();
        assert_eq!(keys.typed(b"a\x10"), (b"a".to_vec(), false));
        assert_eq!(keys.typed(b"\x11"), (Vec::new(), true));
    }

    #[test]
    fn either_key_alone_is_passed_on() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.typed(b"\x11"), (b"\x11".to_vec(), false));
        assert_eq!(keys.typed(b"\x10"), (Vec::new(), false));
        assert_eq!(keys.typed(b"x"), (b"\x10x".to_vec(), false));
        assert_eq!(keys.typed(b"\x10\x10\x11"), (b"\x10".to_vec(), true));
    }
}
