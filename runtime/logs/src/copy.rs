//! Copies one output stream to a log file: read, split, write, acknowledge, with one write for most chunks.
//! Owns this order. `line.rs` makes the lines, and `file.rs` writes them.

use std::{future::Future, io};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::file::LogFile;
use crate::line::{LineEnd, LineSplitter, LogStream};

/// Bytes read at once. It is large enough to make a write's cost negligible.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes split at once. An empty line takes some 41 bytes in the log, so a piece of newlines only becomes
/// 42 KiB.
const PIECE_BYTES: usize = 1 << 10;

/// Bytes of lines that are written without waiting for the rest of the chunk. A chunk of lines of 40 bytes or
/// more needs one write. The buffer stays with the stream until its end, so a chunk of empty lines must not
/// make it large.
const LINES_BYTES: usize = 128 << 10;

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
        for piece in chunk[..length].chunks(PIECE_BYTES) {
            splitter.push(piece, &now, &mut lines);
            if lines.len() >= LINES_BYTES {
                lines = log.append(lines).await;
                acknowledge(splitter.emitted()).await;
                acknowledged = splitter.emitted();
            }
        }
        if length == 0 {
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
