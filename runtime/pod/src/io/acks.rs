//! How much of a container's output is in its log: a small file for a restarted daemon to continue from.
//!
//! The file holds two little-endian `u64`, the counts of stdout and stderr. The counts are written before the
//! agent may forget the bytes. The file is in memory, in the run directory. It has to survive the daemon, not
//! the node: the guest with the rest of the output does not survive the node either. If a daemon is killed
//! between the write of a line and of its count, this chunk is logged twice; nothing is lost.
//!
//! The file's place in the first versions, on the state's disk, is read beside the async threads.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime_blocking::Pool;
use runtime_fail_points::{Point, pass};
use runtime_logs::LogStream;

/// Both counts.
const BYTES: usize = 16;

/// The file of a container. Calls are short, and on no disk, but for [`Acks::take_over`].
#[derive(Debug)]
pub(crate) struct Acks {
    path: PathBuf,
    /// The file's place in the first versions, on the state's disk, and the threads for reading it.
    former: Option<(PathBuf, Pool)>,
    file: Mutex<Option<File>>,
}

impl Acks {
    /// Makes the file of a new container.
    pub(crate) fn make(path: &Path) -> io::Result<Acks> {
        let acks = Acks { path: path.to_owned(), former: None, file: Mutex::new(None) };
        acks.with(|_| Ok(()))?;
        Ok(acks)
    }

    /// The file of a container created by an earlier daemon; opened on its first use. The counts are valid
    /// once they are [taken over](Acks::take_over).
    pub(crate) fn found(path: &Path, former: &Path, disk: &Pool) -> Acks {
        let former = Some((former.to_owned(), disk.clone()));
        Acks { path: path.to_owned(), former, file: Mutex::new(None) }
    }

    /// Copies the counts from the file's former place, if the file has none.
    pub(crate) async fn take_over(&self) -> io::Result<()> {
        let Some((former, disk)) = &self.former else { return Ok(()) };
        if self.lock().is_some() || std::fs::metadata(&self.path).is_ok_and(|file| is_whole(file.len())) {
            return Ok(());
        }
        let path = former.clone();
        let counts = match disk.run(move || std::fs::read(path)).await.map_err(io::Error::other)? {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            read => read.unwrap_or_default(),
        };
        let mut open = self.lock();
        if open.is_none() {
            *open = Some(self.open(&counts)?);
        }
        Ok(())
    }

    /// Bytes of the stream in the log.
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
        let mut open = self.lock();
        match &*open {
            Some(file) => call(file),
            None => call(open.insert(self.open(&[])?)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file. If it is incomplete, makes it first, with the counts given.
    fn open(&self, former: &[u8]) -> io::Result<File> {
        pass(Point::AckOpen)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        if !is_whole(file.metadata()?.len()) {
            let mut counts = [0; BYTES];
            let known = former.len().min(BYTES);
            counts[..known].copy_from_slice(&former[..known]);
            file.write_all_at(&counts, 0)?;
        }
        Ok(file)
    }
}

fn is_whole(length: u64) -> bool {
    length >= BYTES as u64
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

    fn disk() -> Pool {
        Pool::new("a disk", 1)
    }

    #[test]
    fn counts_survive_reopening_and_streams_are_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (path, former) = (dir.path().join("c.acks"), dir.path().join("former"));
        let acks = Acks::make(&path).unwrap();
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (0, 0));
        acks.set(LogStream::Stderr, 7).unwrap();
        acks.set(LogStream::Stdout, u64::MAX).unwrap();
        acks.set(LogStream::Stdout, 12).unwrap();
        let acks = Acks::found(&path, &former, &disk());
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (12, 7));
    }

    #[tokio::test]
    async fn counts_of_the_first_versions_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, former) = (dir.path().join("c.acks"), dir.path().join("former"));
        // A container without any acknowledged stderr.
        std::fs::write(&former, 12u64.to_le_bytes()).unwrap();
        let acks = Acks::found(&path, &former, &disk());
        acks.take_over().await.unwrap();
        assert_eq!((acks.get(LogStream::Stdout).unwrap(), acks.get(LogStream::Stderr).unwrap()), (12, 0));
        acks.set(LogStream::Stdout, 15).unwrap();
        let acks = Acks::found(&path, &former, &disk());
        acks.take_over().await.unwrap();
        assert_eq!(acks.get(LogStream::Stdout).unwrap(), 15);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_not_waited_for_where_the_counts_are_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (path, former) = (dir.path().join("c.acks"), dir.path().join("former"));
        Acks::make(&path).unwrap().set(LogStream::Stdout, 12).unwrap();
        let hanging = Pool::new("a disk that hangs", 0);
        let acks = Acks::found(&path, &former, &hanging);
        acks.take_over().await.unwrap();
        assert_eq!(acks.get(LogStream::Stdout).unwrap(), 12);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_no_count() {
        let dir = tempfile::tempdir().unwrap();
        let acks = Acks::found(&dir.path().join("gone/c.acks"), &dir.path().join("former"), &disk());
        acks.get(LogStream::Stdout).unwrap_err();
        std::fs::create_dir(dir.path().join("gone")).unwrap();
        assert_eq!(acks.get(LogStream::Stdout).unwrap(), 0);
    }
}
