//! `tests-bench-writer`: writes from memory as fast as it is let, in a container of a guest.
//!
//! ```text
//!   tests-bench-writer stdout BYTES        to its standard output
//!   tests-bench-writer vsock PORT BYTES    to each who connects to this vsock port, one after the other
//! ```
//!
//! Both write the same pieces, so `tests/bench/src/throughput.rs` only compares the way to the host. The
//! writer is a separate crate, because it is linked statically: in one crate with the benchmarks, all their
//! dependencies would have to be built statically, too.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use vsock::{VMADDR_CID_ANY, VsockListener};

/// Bytes per write: a pipe's capacity (pipe(7)), and the largest vsock packet.
const PIECE_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tests-bench-writer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // As a file: the library's own standard output would search the data for line ends.
        ["stdout", bytes] => write(File::from(io::stdout().as_fd().try_clone_to_owned()?), number(bytes)?),
        ["vsock", port, bytes] => {
            let bytes = number(bytes)?;
            let port = u32::try_from(number(port)?).map_err(io::Error::other)?;
            let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port)?;
            loop {
                write(listener.accept()?.0, bytes)?;
            }
        }
        _ => Err(io::Error::other("stdout BYTES, or vsock PORT BYTES")),
    }
}

fn number(word: &str) -> io::Result<usize> {
    word.parse().map_err(|error| io::Error::other(format!("{word:?}: {error}")))
}

fn write(mut out: impl Write, bytes: usize) -> io::Result<()> {
    let piece = vec![b'x'; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(PIECE_BYTES);
        out.write_all(&piece[..count])?;
        left -= count;
    }
    Ok(())
}
