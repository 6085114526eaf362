//! Follows a container's CRI log and prints the container's original output: partial lines joined, stdout and
//! stderr each to its own. The caller decides when to look again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::show::out;
use anyhow::{Context, bail};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks printed before the caller may look at its signals.
const CHUNKS_AT_ONCE: usize = 16;

/// The log file as it grows.
#[derive(Debug)]
pub(crate) struct LogFollower {
    file: Option<File>,
    path: PathBuf,
    decoder: Decoder,
}

impl LogFollower {
    /// Follows a log. It may not exist yet.
    pub(crate) fn open(path: &Path) -> LogFollower {
        LogFollower { file: None, path: path.to_owned(), decoder: Decoder::default() }
    }

    /// Checks that there was a log to print.
    ///
    /// # Errors
    /// No file was there until now.
    pub(crate) fn was_there(&self) -> anyhow::Result<()> {
        if self.file.is_none() {
            let path = self.path.display();
            bail!("there is no log at {path}: it was removed, or the container was made without one");
        }
        Ok(())
    }

    /// Prints everything since the last call. If the log was rotated, the old file is read to its end before
    /// the new one.
    ///
    /// # Errors
    /// The log cannot be opened or read, or not be printed. A log that does not exist is no error.
    pub(crate) fn print(&mut self) -> anyhow::Result<()> {
        while !self.print_some()? {}
        Ok(())
    }

    /// Like [`print`](Self::print), but only a part of it. Returns true if this was everything. A container
    /// may write faster than this process prints.
    pub(crate) fn print_some(&mut self) -> anyhow::Result<bool> {
        // Opened before the read: a file already rotated away is complete.
        let current = match File::open(&self.path) {
            Ok(file) => Some(file),
            // It is not made yet, or renamed for its rotation, or removed with the container.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("opening the log {}", self.path.display()));
            }
        };
        let Some(file) = &mut self.file else {
            self.file = current;
            return Ok(self.file.is_none());
        };
        if !print_chunks(file, &mut self.decoder)? {
            return Ok(false);
        }
        match current {
            Some(current) if !same(file, &current)? => {
                self.file = Some(current);
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

fn same(one: &File, other: &File) -> anyhow::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Prints a few chunks of the file. Returns true at its end.
fn print_chunks(file: &mut File, decoder: &mut Decoder) -> anyhow::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    for _ in 0..CHUNKS_AT_ONCE {
        let length = file.read(&mut chunk).context("reading the container's log")?;
        if length == 0 {
            return Ok(true);
        }
        // Lines of one stream in one write.
        let mut pieces: Vec<(Stream, Vec<u8>)> = Vec::new();
        decoder.feed(&chunk[..length], |stream, content| match pieces.last_mut() {
            Some((last, piece)) if *last == stream => piece.extend_from_slice(content),
            _ => pieces.push((stream, content.to_vec())),
        });
        for (stream, piece) in pieces {
            print(stream, &piece).map_err(out::failed)?;
        }
    }
    Ok(false)
}

/// The stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// Decodes the log's bytes into content, in pieces of any size.
#[derive(Debug, Default)]
struct Decoder {
    /// The start of a log line whose end was not read yet. The writer bounds lines (16 KiB of content).
    rest: Vec<u8>,
}

impl Decoder {
    /// Decodes the lines completed by `bytes`.
    fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Stream, &[u8])) {
        self.rest.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            if let Some((stream, content, whole)) = parse(&self.rest[start..start + length]) {
                sink(stream, content);
                if whole {
                    sink(stream, b"\n");
                }
            }
            start += length + 1;
        }
        self.rest.drain(..start);
    }
}

/// Parses `<time> <stream> <P|F> <content>`. Returns `None` for any other line, to be skipped.
fn parse(line: &[u8]) -> Option<(Stream, &[u8], bool)> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let _time = parts.next()?;
    let stream = match parts.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let whole = parts.next()? == b"F";
    Some((stream, parts.next().unwrap_or_default(), whole))
}

/// Writes decoded content to this process's own streams.
fn print(stream: Stream, content: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(content)?;
            out.flush()
        }
        Stream::Stderr => io::stderr().lock().write_all(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut decoder = Decoder::default();
        for chunk in chunks {
            decoder.feed(chunk, |stream, content| match stream {
                Stream::Stdout => out.extend_from_slice(content),
                Stream::Stderr => err.extend_from_slice(content),
            });
        }
        (out, err)
    }

    #[test]
    fn a_log_that_grows_faster_than_it_is_printed_leaves_time_for_the_caller() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main.log");
        let mut log = LogFollower::open(&path);
        assert!(log.print_some().unwrap(), "it does not exist yet");
        // Lines that print nothing.
        std::fs::write(&path, "t other F x\n".repeat(400_000)).unwrap();
        let mut parts = 0;
        while !log.print_some().unwrap() {
            parts += 1;
        }
        assert!((4..8).contains(&parts), "{parts}");
        assert!(log.print_some().unwrap());
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_an_error_and_one_that_does_not_exist_is_none_yet() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = LogFollower::open(&dir.path().join("file/main.log")).print_some().unwrap_err();
        assert!(format!("{error:#}").contains("/file/main.log"), "{error:#}");
        LogFollower::open(&dir.path().join("main.log")).print().unwrap();
    }

    #[test]
    fn partial_lines_are_joined_and_streams_separated() {
        let (out, err) = decode(&[b"t stdout P ab\nt stderr F oops\nt stdout F cd\nt stdout P tail\n"]);
        assert_eq!(out, b"abcd\ntail");
        assert_eq!(err, b"oops\n");
    }

    #[test]
    fn a_log_line_cut_anywhere_decodes_the_same() {
        let text: &[u8] = b"t stdout F a b  c\nt stdout F \n";
        for cut in 0..text.len() {
            assert_eq!(decode(&[&text[..cut], &text[cut..]]).0, b"a b  c\n\n", "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_is_no_log_line_is_skipped() {
        assert_eq!(decode(&[b"garbage\nt other F x\nt stdout F y\n"]).0, b"y\n");
    }
}
