//! The fuzzer's input as a script. Both sides of a conversation read from it in turn. At its end everything
//! reads as zero.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a repeated text: above every bound of the product.
const REPEATED_MAX: usize = 400 << 10;

/// See the module. Clones share the position.
#[derive(Clone, Debug)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    at: usize,
}

impl Script {
    /// The whole input.
    #[must_use]
    pub fn new(input: &[u8]) -> Script {
        Script(Arc::new(Mutex::new(State { bytes: input.to_vec(), at: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true at the end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.at == state.bytes.len()
    }

    /// Takes at most this many bytes.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<u8> {
        let mut state = self.state();
        let end = state.bytes.len().min(state.at.saturating_add(most));
        let taken = state.bytes[state.at..end].to_vec();
        state.at = end;
        taken
    }

    fn array<const N: usize>(&self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(&taken);
        array
    }

    /// Takes one byte.
    #[must_use]
    pub fn u8(&self) -> u8 {
        self.array::<1>()[0]
    }

    /// Takes two bytes, little endian.
    #[must_use]
    pub fn u16(&self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Takes four bytes, little endian.
    #[must_use]
    pub fn u32(&self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Takes one byte and returns a number below `count`.
    #[must_use]
    pub fn below(&self, count: usize) -> usize {
        usize::from(self.u8()) % count.max(1)
    }

    /// Bytes of any length: literal ones, then a short piece many times. A short script can so exceed the
    /// bounds on lengths and counts.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let form = self.u8();
        let mut bytes = self.take(usize::from(form >> 1));
        if form & 1 == 1 {
            let piece_bytes = 1 + self.below(16);
            let piece = self.take(piece_bytes);
            let times = usize::from(self.u16()) * (1 + self.below(4));
            let room = REPEATED_MAX / piece.len().max(1);
            bytes.extend(piece.repeat(times.min(room)));
        }
        bytes
    }

    /// [`bytes`](Self::bytes) as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}
