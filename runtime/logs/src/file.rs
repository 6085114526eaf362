//! One container's log file: whole lines only, shared by its two streams, reopened for rotation.
//!
//! ```text
//!   Good ──write fails──► Failing: lines are dropped and counted ──write succeeds──► Good
//! ```
//!
//! A failing file is tried again with every chunk, so logging resumes by itself when there is room. The part
//! of a line that a failed write left is cut off, so that the next write begins at a line's start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use runtime_fail_points::{Point, pass};
use tokio::task::spawn_blocking;

/// Bytes at the end of a file among which its last whole line ends: more than the longest line has.
const TAIL_BYTES: u64 = 64 << 10;

/// Least time between two reports of one file's failure in the daemon's own log.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// One container's log, shared by the copiers of its streams. Clones are the same file.
#[derive(Clone, Debug)]
pub struct LogFile(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    open: Mutex<Open>,
}

/// The file and the state of writing to it. Locked for one chunk of whole lines at a time.
#[derive(Debug, Default)]
struct Open {
    /// The file; `None` until it is written to, where it was found and not made.
    file: Option<File>,
    /// Whether the file ends within a line that could not be cut off.
    torn: bool,
    dropped: u64,
    failing: bool,
    reported: Option<Instant>,
}

impl LogFile {
    /// Opens the file for appending; made with mode 0640, and its folders too, where absent.
    ///
    /// # Errors
    /// If it cannot be opened or made.
    pub async fn open(path: &Path) -> io::Result<LogFile> {
        let path = path.to_owned();
        blocking(move || {
            let mut open = Open::default();
            open.open(&path)?;
            Ok(LogFile(Some(Arc::new(Shared { path, open: Mutex::new(open) }))))
        })
        .await
    }

    /// The log of a container that an earlier daemon wrote to. The file is opened by the first line: where that fails,
    /// lines are dropped and counted as on a full disk.
    #[must_use]
    pub fn found(path: &Path) -> LogFile {
        LogFile(Some(Arc::new(Shared { path: path.to_owned(), open: Mutex::default() })))
    }

    /// Opens a log that was found, before anybody moves its file away: an unfinished line at the file's end is cut off
    /// now. A failure is the next line's to report.
    pub async fn mend(&self) {
        let Some(shared) = self.0.clone() else { return };
        let _ = blocking(move || shared.lock().open(&shared.path)).await;
    }

    /// A log for containers without a log path: everything is taken and nothing kept.
    #[must_use]
    pub fn discard() -> LogFile {
        LogFile(None)
    }

    /// Opens the path again, after somebody moved the file away. When this returns, the new file exists and
    /// nothing more is written to the old one. No line is lost or torn: each is in the old file or in the new.
    ///
    /// # Errors
    /// If the path cannot be opened; the old file then stays in use.
    pub async fn reopen(&self) -> io::Result<()> {
        let Some(shared) = self.0.clone() else { return Ok(()) };
        blocking(move || {
            let file = append_to(&shared.path)?;
            let mut open = shared.lock();
            open.file = Some(file);
            open.torn = false;
            Ok(())
        })
        .await
    }

    /// Appends whole lines and returns the emptied buffer. Lines that cannot be written are counted, and the
    /// failure is logged here: a full disk is no failure of the container.
    pub(crate) async fn append(&self, mut lines: Vec<u8>) -> Vec<u8> {
        let Some(shared) = self.0.clone().filter(|_| !lines.is_empty()) else {
            lines.clear();
            return lines;
        };
        let append = move || {
            shared.lock().append(&lines, &shared.path);
            lines.clear();
            Ok(lines)
        };
        // The job cannot panic or be cancelled, short of the runtime's own end.
        blocking(append).await.unwrap_or_default()
    }
}

impl Shared {
    /// A panic while writing leaves a file as any failed write does.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Opens the file, where it is not open, and cuts the unfinished line off its end: a daemon that is killed within a
    /// write leaves one, and the line comes again from the agent, whole.
    fn open(&mut self, path: &Path) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let file = append_to(path)?;
        self.torn = cut_torn_line(&file, path).is_err();
        self.file = Some(file);
        Ok(())
    }

    /// Writes as much as the file takes, and returns how much that was.
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

    /// Cuts the unfinished line off the end of the file, and returns how much of `written` stays.
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
    // Opened anew: the log itself is open for writing alone, and may be written by who may not read it.
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

/// Runs file work on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_a_killed_daemon_left_torn_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        for (left, whole) in [("one\ntw", "one\n"), ("on", ""), ("one\n", "one\n"), ("", "")] {
            fs::write(&path, left).unwrap();
            let log = LogFile::found(&path);
            log.mend().await;
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
            log.append(b"two\n".to_vec()).await;
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{whole}two\n"));
        }
        // No line of a log is as long: the bytes are somebody else's, and stay.
        let long = "x".repeat(70 << 10);
        fs::write(&path, &long).unwrap();
        LogFile::open(&path).await.unwrap().append(b"two\n".to_vec()).await;
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{long}\ntwo\n"));
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_opened_yet_is_written_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs");
        fs::write(&folder, "in the way").unwrap();
        let log = LogFile::found(&folder.join("0.log"));
        log.append(b"lost\n".to_vec()).await;
        fs::remove_file(&folder).unwrap();
        log.append(b"kept\n".to_vec()).await;
        assert_eq!(fs::read(folder.join("0.log")).unwrap(), b"kept\n");
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted_and_writing_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let log = LogFile::open(&path).await.unwrap();
        log.append(b"lost\nlost too\n".to_vec()).await;
        let dropped = || log.0.as_ref().unwrap().lock().dropped;
        assert_eq!(dropped(), 14);
        fs::remove_file(&path).unwrap();
        log.reopen().await.unwrap();
        log.append(b"kept\n".to_vec()).await;
        assert_eq!(dropped(), 14);
        assert_eq!(fs::read(&path).unwrap(), b"kept\n");
    }
}
