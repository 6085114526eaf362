//! Standard error for the log, with a bound on its size. It keeps the beginning, with the reason if a VM
//! did not start, and the end, with the reason of the VM's end. A guest can cause log lines, seldom but for
//! as long as it lives.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of a log before the VM's end.
const BYTES_MAX: u64 = 256 << 10;

/// Most bytes of the log of the end. It holds a report, and each byte of the report's console text may take
/// six.
const END_BYTES_MAX: u64 = 64 << 10;

/// The last line before the end.
const FULL: &str = "{\"level\":\"WARN\",\"fields\":{\"message\":\"the log is full; nothing more is logged until the VM ends\"}}\n";

/// The log. Clones share it.
#[derive(Debug)]
pub(crate) struct BoundedLog<W = io::Stderr> {
    to: Arc<Mutex<W>>,
    left: Arc<AtomicU64>,
}

impl Default for BoundedLog {
    fn default() -> Self {
        BoundedLog::new(io::stderr())
    }
}

impl<W> Clone for BoundedLog<W> {
    fn clone(&self) -> Self {
        BoundedLog { to: self.to.clone(), left: self.left.clone() }
    }
}

impl<W: Write> BoundedLog<W> {
    fn new(to: W) -> Self {
        BoundedLog { to: Arc::new(Mutex::new(to)), left: Arc::new(AtomicU64::new(BYTES_MAX)) }
    }

    /// Makes room for the log of the end, even if the log is full.
    pub(crate) fn make_room_for_the_end(&self) {
        self.left.fetch_max(END_BYTES_MAX, Ordering::Relaxed);
    }
}

/// A line of the log is one write.
impl<W: Write> Write for BoundedLog<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.left.load(Ordering::Relaxed);
        let rest = left.saturating_sub(line.len() as u64);
        self.left.store(rest, Ordering::Relaxed);
        match (left, rest) {
            (0, _) => {}
            (_, 0) => to.write_all(FULL.as_bytes())?,
            _ => to.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl<'a, W: Write + 'a> MakeWriter<'a> for BoundedLog<W> {
    type Writer = BoundedLog<W>;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_says_so_once_and_has_the_end() {
        let mut log = BoundedLog::new(Vec::new());
        let line = [b'x'; 1000];
        for _ in 0..1000 {
            log.write_all(&line).unwrap();
        }
        log.make_room_for_the_end();
        log.write_all(b"the end").unwrap();
        let written = log.to.lock().unwrap();
        let text = String::from_utf8_lossy(&written);
        assert!(written.len() as u64 <= BYTES_MAX + FULL.len() as u64 + 7, "{} bytes", written.len());
        assert_eq!(text.matches(FULL).count(), 1);
        assert!(text.starts_with(&"x".repeat(100_000)) && text.ends_with("the end"));
    }
}
