//! The copy of a console in a file, line by line, for readers during the VM's life or after it. A guest can
//! write without end, so the file has a limit. When it is full, it starts again with the content of the
//! console's ring.
//!
//! ```text
//!   line, line, line … ──full──► "… bytes before this are cut off", the ring, line, line … ──full──► …
//! ```
//!
//! A failed write loses its line. The next line starts the file again, and so restores the ring's content.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, Write};

use proto_vmm::{CONSOLE_FILE_BYTES_MAX, cut_line, printable};

/// Most bytes of an unfinished line before it is written.
const LINE_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct ConsoleFile {
    file: File,
    /// The unfinished line.
    line: Vec<u8>,
    /// Bytes in the file.
    length: u64,
    /// All bytes of the console so far.
    total: u64,
}

impl ConsoleFile {
    pub(crate) fn new(file: File) -> ConsoleFile {
        ConsoleFile { file, line: Vec::new(), length: 0, total: 0 }
    }

    /// Adds bytes. They are already the last ones in the ring.
    pub(crate) fn add(&mut self, bytes: &[u8], ring: &VecDeque<u8>) {
        self.total += bytes.len() as u64;
        self.line.extend(bytes.iter().copied().map(printable));
        if self.line.len() >= LINE_BYTES_MAX || self.line.ends_with(b"\n") {
            self.finish(ring);
        }
    }

    /// Writes an unfinished line.
    pub(crate) fn finish(&mut self, ring: &VecDeque<u8>) {
        let line = std::mem::take(&mut self.line);
        let full = self.length.saturating_add(line.len() as u64) > CONSOLE_FILE_BYTES_MAX;
        let written = if full { self.begin_anew(ring) } else { self.write(&line) };
        if written.is_err() {
            self.length = CONSOLE_FILE_BYTES_MAX;
        }
    }

    fn begin_anew(&mut self, ring: &VecDeque<u8>) -> io::Result<()> {
        let mut content = cut_line(self.total.saturating_sub(ring.len() as u64)).into_bytes();
        content.extend(ring.iter().copied().map(printable));
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.length = 0;
        self.write(&content)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use proto_vmm::console_of;

    use super::*;
    use crate::console::{CONSOLE_BYTES, Console};

    fn console() -> (Console, File) {
        let file = nix::sys::memfd::memfd_create(c"console", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let file = File::from(file);
        (Console::copied_to(file.try_clone().unwrap()), file)
    }

    fn content(file: &mut File) -> Vec<u8> {
        let mut content = Vec::new();
        // The two handles share their file position.
        let place = file.stream_position().unwrap();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(file.stream_position().unwrap(), place, "the writer stands at the end");
        content
    }

    #[test]
    fn lines_are_there_at_once_and_the_last_one_at_the_end() {
        let (mut console, mut file) = console();
        for byte in b"one\x1b\ntw" {
            console.write_all(&[*byte]).unwrap();
        }
        assert_eq!(content(&mut file), b"one?\n");
        console.finish();
        assert_eq!(content(&mut file), b"one?\ntw");
    }

    #[test]
    fn a_guest_that_writes_without_end_has_a_bounded_file_with_what_it_wrote_last() {
        let (mut console, mut file) = console();
        let mut all = Vec::new();
        for number in 0..100_000 {
            let line = format!("line {number}\n");
            console.write_all(line.as_bytes()).unwrap();
            all.extend(line.into_bytes());
            if number % 997 == 0 || number == 99_999 {
                let content = content(&mut file);
                assert!(content.len() as u64 <= CONSOLE_FILE_BYTES_MAX, "{} bytes", content.len());
                let (cut, rest) = console_of(&content);
                assert!(rest == &all[usize::try_from(cut).unwrap()..], "after line {number}");
                assert!(cut == 0 || rest.len() >= CONSOLE_BYTES);
            }
        }
    }
}
