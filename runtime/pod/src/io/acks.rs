//! How much of a container's output is in its log: a small file that a restarted daemon goes on from.
//!
//! The file holds two little-endian `u64`, stdout's and stderr's count. The counts are written before the agent
//! may forget the bytes. The file is in memory, in the run directory: it has to survive the daemon, not the node, since
//! the guest with the rest of the output does not survive the node either. A daemon killed between a line's
//! write and the count's logs that chunk twice; nothing is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use runtime_fail_points::{Point, pass};
use runtime_logs::LogStream;

/// Both counts.
const BYTES: usize = 16;

/// The file of a container. Calls are short, and on no disk.
#[derive(Debug)]
pub(crate) struct Acks {
    path: PathBuf,
    /// The file's place in the first versions, on the disk of the state.
    former: Option<PathBuf>,
    file: Mutex<Option<File>>,
}

impl Acks {
    /// Makes the file of a new container.
    pub(crate) fn make(path: &Path) -> io::Result<Acks> {
        let acks = Acks { path: path.to_owned(), former: None, file: Mutex::new(None) };
        acks.with(|_| Ok(()))?;
        Ok(acks)
    }

    /// The file of a container that an earlier daemon made; opened when it is used.
    pub(crate) fn found(path: &Path, former: &Path) -> Acks {
        Acks { path: path.to_owned(), former: Some(former.to_owned()), file: Mutex::new(None) }
    }

    /// Bytes of the stream that are in the log.
    pub(crate) fn get(&self, stream: LogStream) -> io::Result<u64> {
        self.with(|file| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, place(stream))?;
            Ok(u64::from_le_bytes(bytes))
        })
    }

    /// Notes how many bytes of the stream are in the log.
    pub(crate) fn set(&self, stream: LogStream, total: u64) -> io::Result<()> {
        pass(Point::AckWrite)?;
        self.with(|file| file.write_all_at(&total.to_le_bytes(), place(stream)))
    }

    fn with<T>(&self, call: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            Some(file) => call(file),
            None => call(open.insert(self.open()?)),
        }
    }

    /// Opens the file, and makes it first where it is not there: with the counts at its former place, or with none.
    fn open(&self) -> io::Result<File> {
        pass(Point::AckOpen)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        if file.metadata()?.len() < BYTES as u64 {
            let former = match self.former.as_ref().map(std::fs::read) {
                Some(Err(error)) if error.kind() != ErrorKind::NotFound => return Err(error),
                Some(Ok(bytes)) => bytes,
                _ => Vec::new(),
            };
            let mut counts = [0; BYTES];
            let known = former.len().min(BYTES);
            counts[..known].copy_from_slice(&former[..known]);
            file.write_all_at(&counts, 0)?;
        }
        Ok(file)
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
        let (path, former) = (dir.path().join("c.acks"), dir.path().join("former"));
        let acks = Acks::make(&path).unwrap();
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (0, 0));
        acks.set(LogStream::Stderr, 7).unwrap();
        acks.set(LogStream::Stdout, u64::MAX).unwrap();
        acks.set(LogStream::Stdout, 12).unwrap();
        let acks = Acks::found(&path, &former);
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (12, 7));
    }

    #[test]
    fn counts_of_the_first_versions_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, former) = (dir.path().join("c.acks"), dir.path().join("former"));
        // A container whose stderr was never acknowledged.
        std::fs::write(&former, 12u64.to_le_bytes()).unwrap();
        let acks = Acks::found(&path, &former);
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (12, 0));
        acks.set(LogStream::Stdout, 15).unwrap();
        assert_eq!(Acks::found(&path, &former).get(LogStream::Stdout).unwrap(), 15);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_no_count() {
        let dir = tempfile::tempdir().unwrap();
        let acks = Acks::found(&dir.path().join("gone/c.acks"), &dir.path().join("former"));
        acks.get(LogStream::Stdout).unwrap_err();
        std::fs::create_dir(dir.path().join("gone")).unwrap();
        assert_eq!(acks.get(LogStream::Stdout).unwrap(), 0);
    }
}
