//! Copies one output stream to a log file: read, split, write, acknowledge, with one write per chunk read.
//! Owns this order. `line.rs` makes the lines, and `file.rs` writes them.

use std::{future::Future, io};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::file::LogFile;
use crate::line::{LineEnd, LineSplitter, LogStream};

/// Bytes read at once. It is large enough to make a write's cost negligible. It also bounds the memory of one
/// stream: in a chunk of newlines only, each byte becomes a line of some 45 bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Copies `reader` to `log` until its end. Returns the number of bytes read.
///
/// After each write, it calls `acknowledge` with the number of bytes in the log, or dropped after a failed
/// write. They are counted from the beginning of this copy. Bytes still waiting for their newline are not
/// included, so a later copy can continue from the last acknowledgement without losing or doubling anything.
/// At the end of the stream they are written as a partial line and acknowledged. (If a copy is dropped or
/// killed between a write and its acknowledgement, its chunk is in the log already, and the next copy writes
/// it again.)
///
/// # Errors
/// If reading fails. Bytes still waiting for their newline are then neither written nor acknowledged.
pub async fn copy<R, A, F>(
    mut reader: R,
    stream: LogStream,
    line_end: LineEnd,
    log: &LogFile,
    mut acknowledge: A,
) -> io::Result<u64>
where
    R: AsyncRead + Unpin,
    A: FnMut(u64) -> F,
    F: Future<Output = ()>,
{
    let mut splitter = LineSplitter::new(stream, line_end);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut lines = Vec::new();
    let (mut total, mut acknowledged) = (0, 0);
    loop {
        let length = reader.read(&mut chunk).await?;
        total += length as u64;
        let now = format!("{:.9}", jiff::Timestamp::now());
        if length > 0 {
            splitter.push(&chunk[..length], &now, &mut lines);
        } else {
            splitter.finish(&now, &mut lines);
        }
        lines = log.append(lines).await;
        if splitter.emitted() > acknowledged {
            acknowledged = splitter.emitted();
            acknowledge(acknowledged).await;
        }
        if length == 0 {
            return Ok(total);
        }
    }
}
