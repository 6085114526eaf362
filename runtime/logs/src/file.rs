//! One container's log file: whole lines only, shared by its two streams, reopened for rotation.
//!
//! ```text
//!   Good ──write fails──► Failing: lines are dropped and counted ──write succeeds──► Good
//! ```
//!
//! One thread at a time works on a file. Other callers wait without a thread, so a hanging disk takes only
//! one thread of the pool for each log.
//!
//! Each chunk tries a failing file again, so logging resumes by itself when there is room. A failed write may
//! leave a part of a line. It is cut off, so that the next write begins at a line's start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use runtime_blocking::Pool;
use runtime_fail_points::{Point, pass};
use tokio::sync::Mutex;

use crate::counters;

/// Bytes at the end of a file with the end of its last whole line among them: more than the longest line.
const TAIL_BYTES: u64 = 64 << 10;

/// Shortest interval between two reports of one file's failure in the daemon's own log.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// One container's log, shared by the copiers of its streams. Clones share the file.
#[derive(Clone, Debug)]
pub struct LogFile(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    path: Arc<Path>,
    /// Held by the file's working thread, or while waiting for a thread.
    open: Arc<Mutex<Open>>,
    pool: Pool,
}

/// The file and the state of writing to it. Locked for one chunk of whole lines at a time.
#[derive(Debug, Default)]
struct Open {
    /// The file. `None` for a log of an earlier daemon until the first write.
    file: Option<File>,
    /// True if the file ends within a line and could not be cut.
    torn: bool,
    dropped: u64,
    failing: bool,
    reported: Option<Instant>,
}

impl LogFile {
    /// Opens the file for appending. Creates it with mode 0640, and missing folders too. All work on the file
    /// runs on the pool's threads.
    ///
    /// # Errors
    /// If it cannot be opened or created.
    pub async fn open(path: &Path, pool: &Pool) -> io::Result<LogFile> {
        let log = LogFile::found(path, pool);
        log.work(Open::open).await?;
        Ok(log)
    }

    /// The log of a container started by an earlier daemon. The first line opens the file. If that fails,
    /// lines are dropped and counted as on a full disk.
    #[must_use]
    pub fn found(path: &Path, pool: &Pool) -> LogFile {
        LogFile(Some(Arc::new(Shared { path: path.into(), open: Arc::default(), pool: pool.clone() })))
    }

    /// Opens a log of an earlier daemon before its file is moved away, and cuts off an unfinished line at its
    /// end. The next line reports any failure.
    pub async fn mend(&self) {
        let _ = self.work(Open::open).await;
    }

    /// A log for containers without a log path: it discards all lines.
    #[must_use]
    pub fn discard() -> LogFile {
        LogFile(None)
    }

    /// Opens the path again, after the file was moved away. When this returns, the new file exists and
    /// nothing more is written to the old one. No line is lost or torn: each is in the old file or in the
    /// new.
    ///
    /// # Errors
    /// If the path cannot be opened; the old file then stays in use.
    pub async fn reopen(&self) -> io::Result<()> {
        self.work(|open, path| {
            open.file = Some(append_to(path)?);
            open.torn = false;
            Ok(())
        })
        .await
    }

    /// Appends whole lines and returns the emptied buffer. Lines are counted if they cannot be written, and
    /// the failure is logged here: a full disk is no failure of the container.
    pub(crate) async fn append(&self, mut lines: Vec<u8>) -> Vec<u8> {
        if self.0.is_none() || lines.is_empty() {
            lines.clear();
            return lines;
        }
        let append = move |open: &mut Open, path: &Path| {
            open.append(&lines, path);
            lines.clear();
            Ok(lines)
        };
        // The job never panics, and is only cancelled when the runtime ends.
        self.work(append).await.unwrap_or_default()
    }

    /// Runs work on the file, on a thread of the pool. It waits for earlier callers, then for a thread. A
    /// panic while writing leaves the file as any failed write does.
    async fn work<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Open, &Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some(shared) = &self.0 else { return Ok(T::default()) };
        let mut open = shared.open.clone().lock_owned().await;
        let (place, path) = (shared.pool.place().await, shared.path.clone());
        place.run(move || work(&mut open, &path)).await.map_err(io::Error::other)?
    }
}

impl Open {
    fn append(&mut self, lines: &[u8], path: &Path) {
        let (written, result) = match self.open(path) {
            Ok(()) => self.write(lines),
            Err(error) => (0, Err(error)),
        };
        let kept = if result.is_ok() { lines.len() } else { self.cut_to_whole_lines(&lines[..written]) };
        self.dropped += (lines.len() - kept) as u64;
        counters::wrote(kept, lines.len() - kept);
        let path = path.display();
        match result {
            Err(error) => {
                self.failing = true;
                if self.reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                    self.reported = Some(Instant::now());
                    tracing::warn!(%path, %error, dropped = self.dropped, "a container's log cannot be written");
                }
            }
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!(%path, dropped = self.dropped, "a container's log is written again");
            }
            Ok(()) => {}
        }
    }

    /// Opens the file if it is not open, and cuts the unfinished line off its end. A daemon killed during a
    /// write leaves one, and the agent sends the whole line again.
    ///
    /// A file without a name is opened anew, because nobody reads it. The kubelet moves a rotated log back
    /// over the new file if a reopening takes too long.
    fn open(&mut self, path: &Path) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|file| file.nlink() > 0)) {
            return Ok(());
        }
        let file = append_to(path)?;
        self.torn = cut_torn_line(&file, path).is_err();
        self.file = Some(file);
        Ok(())
    }

    /// Writes as much as possible, and returns the number of bytes written.
    fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let Some(file) = &mut self.file else { return (0, Err(io::ErrorKind::NotFound.into())) };
        if self.torn {
            match file.write_all(b"\n") {
                Ok(()) => self.torn = false,
                Err(error) => return (0, Err(error)),
            }
        }
        if let Err(error) = pass(Point::LogWrite) {
            return (0, Err(error));
        }
        let mut written = 0;
        while written < lines.len() {
            match file.write(&lines[written..]) {
                Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Cuts the unfinished line off the end of the file. Returns the number of bytes of `written` to keep.
    fn cut_to_whole_lines(&mut self, written: &[u8]) -> usize {
        let whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = (written.len() - whole) as u64;
        if rest > 0 {
            let cut = |file: &File| file.set_len(file.metadata()?.len().saturating_sub(rest));
            self.torn = self.file.as_ref().is_none_or(|file| cut(file).is_err());
        }
        whole
    }
}

/// Cuts the bytes after the last newline off a file.
fn cut_torn_line(file: &File, path: &Path) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(());
    }
    let length = metadata.len();
    let start = length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or_default()];
    // Opened a second time: the log itself is open only for writing, and its writer may lack permission to
    // read.
    File::open(path)?.read_exact_at(&mut tail, start)?;
    let whole = match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => start + at as u64 + 1,
        None if start == 0 => 0,
        None => return Err(io::Error::other("its last line is longer than any line of a log")),
    };
    if whole < length {
        file.set_len(whole)?;
        tracing::info!(path = %path.display(), bytes = length - whole, "an unfinished line is cut off a log");
    }
    Ok(())
}

fn append_to(path: &Path) -> io::Result<File> {
    pass(Point::LogOpen)?;
    let open = || OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            open()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool::new("logs", 1)
    }

    /// Creates a pipe without a reader, like a file on a hanging disk: opening it for writing waits for a
    /// reader.
    fn hang(path: &Path) {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }

    #[tokio::test]
    async fn a_log_that_hangs_takes_one_thread_and_others_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let (hung, other) = (dir.path().join("hung.log"), dir.path().join("other.log"));
        hang(&hung);
        let pool = Pool::new("logs", 2);
        let log = LogFile::found(&hung, &pool);
        // Both streams, and a kubelet that rotates the log twice.
        let calls: Vec<_> = (0..4)
            .map(|number| {
                let log = log.clone();
                tokio::spawn(async move {
                    match number {
                        0 | 1 => drop(log.append(b"kept\n".to_vec()).await),
                        _ => log.reopen().await.unwrap(),
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let writing = async {
            LogFile::open(&other, &pool).await.unwrap().append(b"written\n".to_vec()).await;
        };
        tokio::time::timeout(Duration::from_secs(60), writing).await.expect("the other log waits, too");
        assert_eq!(fs::read(&other).unwrap(), b"written\n");
        assert!(calls.iter().all(|call| !call.is_finished()));
        // The disk answers again.
        let reader = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&hung).unwrap();
        for call in calls {
            call.await.unwrap();
        }
        drop(reader);
    }

    #[tokio::test]
    async fn a_line_that_a_killed_daemon_left_torn_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        for (left, whole) in [("one\ntw", "one\n"), ("on", ""), ("one\n", "one\n"), ("", "")] {
            fs::write(&path, left).unwrap();
            let log = LogFile::found(&path, &pool());
            log.mend().await;
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
            log.append(b"two\n".to_vec()).await;
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{whole}two\n"));
        }
        // No line of a log is as long. The bytes come from another program, and stay.
        let long = "x".repeat(70 << 10);
        fs::write(&path, &long).unwrap();
        LogFile::open(&path, &pool()).await.unwrap().append(b"two\n".to_vec()).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{long}\ntwo\n"));
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_opened_yet_is_written_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs");
        fs::write(&folder, "in the way").unwrap();
        let log = LogFile::found(&folder.join("0.log"), &pool());
        log.append(b"lost\n".to_vec()).await;
        fs::remove_file(&folder).unwrap();
        log.append(b"kept\n".to_vec()).await;
        assert_eq!(fs::read(folder.join("0.log")).unwrap(), b"kept\n");
    }

    #[tokio::test]
    async fn a_log_whose_file_was_replaced_or_removed_is_written_under_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let log = LogFile::open(&path, &pool()).await.unwrap();
        log.append(b"one\n".to_vec()).await;
        // The kubelet takes back a rotation that it believes to have failed.
        fs::rename(&path, &rotated).unwrap();
        log.reopen().await.unwrap();
        fs::rename(&rotated, &path).unwrap();
        log.append(b"two\n".to_vec()).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        // A person makes room.
        fs::remove_file(&path).unwrap();
        log.append(b"three\n".to_vec()).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted_and_writing_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let log = LogFile::open(&path, &pool()).await.unwrap();
        log.append(b"lost\nlost too\n".to_vec()).await;
        let dropped = || log.0.as_ref().unwrap().open.try_lock().unwrap().dropped;
        assert_eq!(dropped(), 14);
        fs::remove_file(&path).unwrap();
        log.reopen().await.unwrap();
        log.append(b"kept\n".to_vec()).await;
        assert_eq!(dropped(), 14);
        assert_eq!(fs::read(&path).unwrap(), b"kept\n");
    }
}
