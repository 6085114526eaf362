//! The last 64 KiB of the guest's console output, and the panic message in it. A write never blocks the
//! guest: new bytes replace old ones. Lines are copied to a file, and the file outlives the VMM.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::console_file::ConsoleFile;

/// Bytes of console text kept.
pub const CONSOLE_BYTES: usize = 64 << 10;

/// Bytes of console text in a stop report.
pub(crate) const CONSOLE_TAIL_BYTES: usize = 8 << 10;

/// The text in front of a panic's reason on Linux (`panic()` in kernel/panic.c).
const PANIC: &str = "Kernel panic - not syncing: ";

/// A ring of console text; clones share it. A write takes everything, at once.
#[derive(Clone, Debug, Default)]
pub struct Console(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<u8>,
    file: Option<ConsoleFile>,
}

impl Console {
    /// Returns a console with a copy in `file`. The file is empty and in memory, because a vCPU waits for its
    /// writes.
    pub fn copied_to(file: File) -> Console {
        Console(Arc::new(Mutex::new(Ring { kept: VecDeque::new(), file: Some(ConsoleFile::new(file)) })))
    }

    /// Copies an unfinished last line to the file, after the last write.
    pub(crate) fn finish(&self) {
        let mut ring = self.ring();
        let Ring { kept, file } = &mut *ring;
        if let Some(file) = file {
            file.finish(kept);
        }
    }

    /// Returns the kept text, oldest first, lossily decoded.
    pub fn text(&self) -> String {
        self.tail(CONSOLE_BYTES)
    }

    /// Returns the last `bytes`, lossily decoded. Control characters other than line ends and tabs are
    /// replaced.
    pub(crate) fn tail(&self, bytes: usize) -> String {
        let ring = self.ring();
        let tail: Vec<u8> = ring.kept.iter().skip(ring.kept.len().saturating_sub(bytes)).copied().collect();
        // No byte may grow: a full ring must fit into one packet, and JSON writes most control characters as
        // six bytes.
        String::from_utf8_lossy(&tail)
            .chars()
            .map(|c| if c == char::REPLACEMENT_CHARACTER || is_odd_control(c) { '?' } else { c })
            .collect()
    }

    /// Returns the reason of the last kernel panic on the console.
    pub(crate) fn panic_message(&self) -> Option<String> {
        let text = self.text();
        let (_, after) = text.rsplit_once(PANIC)?;
        Some(after.lines().next().unwrap_or_default().trim_end().to_owned())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_odd_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r' | '\t')
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut ring = self.ring();
        let Ring { kept: ring, file } = &mut *ring;
        let kept = &bytes[bytes.len().saturating_sub(CONSOLE_BYTES)..];
        let excess = (ring.len() + kept.len()).saturating_sub(CONSOLE_BYTES);
        ring.drain(..excess);
        ring.extend(kept);
        if let Some(file) = file {
            file.add(bytes, ring);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_bytes_make_room_for_new_ones() {
        let mut console = Console::default();
        console.write_all(&vec![b'a'; CONSOLE_BYTES]).unwrap();
        console.write_all(b"end").unwrap();
        assert_eq!(console.text().len(), CONSOLE_BYTES);
        assert_eq!(console.tail(4), "aend");
        console.write_all(&vec![b'b'; 3 * CONSOLE_BYTES]).unwrap();
        assert_eq!(console.text().len(), CONSOLE_BYTES);
    }

    #[test]
    fn a_panic_is_found_with_its_reason() {
        let mut console = Console::default();
        assert_eq!(console.panic_message(), None);
        console.write_all(b"[ 0.1] Kernel panic - not syncing: VFS: no root\r\n[ 0.2] CPU: 0\r\n").unwrap();
        assert_eq!(console.panic_message().as_deref(), Some("VFS: no root"));
    }

    #[test]
    fn bytes_that_are_not_text_do_not_grow() {
        let mut console = Console::default();
        console.write_all(&[0xff; 100]).unwrap();
        console.write_all(b"\x1b[1m\0\n").unwrap();
        assert_eq!(console.text(), format!("{}?[1m?\n", "?".repeat(100)));
    }
}
