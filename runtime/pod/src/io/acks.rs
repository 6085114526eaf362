//! How much of a container's output is in its log: a small file that a restarted daemon goes on from.
//!
//! The file holds two little-endian `u64`, stdout's and stderr's count. The counts are written before the agent
//! may forget the bytes, without waiting for the disk: the file has to survive the daemon, not the node, since
//! the guest with the rest of the output does not survive the node either. A daemon killed between a line's
//! write and the count's logs that chunk twice; nothing is lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use runtime_logs::LogStream;

/// The open file of a container.
#[derive(Debug)]
pub(crate) struct Acks {
    file: File,
}

impl Acks {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> io::Result<Acks> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Acks { file })
    }

    /// Bytes of the stream that are in the log.
    pub(crate) fn get(&self, stream: LogStream) -> u64 {
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, place(stream)) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    /// Notes how many bytes of the stream are in the log.
    pub(crate) fn set(&self, stream: LogStream, total: u64) -> io::Result<()> {
        self.file.write_all_at(&total.to_le_bytes(), place(stream))
    }
}

fn place(stream: LogStream) -> u64 {
    match stream {
        LogStream::Stdout => 0,
        LogStream::Stderr => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_reopening_and_streams_are_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.acks");
        let acks = Acks::open(&path).unwrap();
        assert_eq!((acks.get(LogStream::Stdout), acks.get(LogStream::Stderr)), (0, 0));
        acks.set(LogStream::Stderr, 7).unwrap();
        acks.set(LogStream::Stdout, u64::MAX).unwrap();
        acks.set(LogStream::Stdout, 12).unwrap();
        let acks = Acks::open(&path).unwrap();
        assert_eq!((acks.get(LogStream::Stdout), acks.get(LogStream::Stderr)), (12, 7));
    }
}
