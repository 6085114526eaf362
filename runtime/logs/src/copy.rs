//! Copies one output stream to a log file: read, split, write, acknowledge; one write per chunk read. Owns that
//! order; lines are made by `line.rs` and written by `file.rs`.

use std::{future::Future, io};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::file::LogFile;
use crate::line::{LineSplitter, LogStream};

/// Bytes read at once. Large enough that a write's cost does not show, and a bound on what one stream holds:
/// of a chunk of newlines alone, each becomes a line of some 45 bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Copies `reader` to `log` until its end, and returns how many bytes came.
///
/// After each write, `acknowledge` is called with how many bytes of the stream, counted from where this copy
/// began, are in the log (or were dropped because it could not be written). Bytes that still wait for
/// their newline are not among them, so a copy that breaks off can be continued from the last
/// acknowledgement without losing or doubling anything. At the end of the stream they are written as a
/// partial line and acknowledged. (A copy that is dropped or killed between a write and its acknowledgement
/// has written that one chunk, and the next copy will write it again.)
///
/// # Errors
/// If reading fails. Bytes that still waited for their newline are then neither written nor acknowledged.
pub async fn copy<R, A, F>(
    mut reader: R,
    stream: LogStream,
    log: &LogFile,
    mut acknowledge: A,
) -> io::Result<u64>
where
    R: AsyncRead + Unpin,
    A: FnMut(u64) -> F,
    F: Future<Output = ()>,
{
    let mut splitter = LineSplitter::new(stream);
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
