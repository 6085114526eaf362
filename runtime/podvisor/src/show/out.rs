//! Standard output with a reader that may close it: `podvisor ps | head` ends quietly. Nothing ends for
//! want of a reader of standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The process's one standard output has one such failure.
static UNWRITTEN: Mutex<Option<anyhow::Error>> = Mutex::new(None);

/// The reader has closed the output, so the command ends silently.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the reader has closed the output")]
pub(crate) struct ReaderGone;

/// Writes the text at once.
///
/// # Errors
/// [`ReaderGone`], or another error of the output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write(&mut io::stdout().lock(), text)
}

fn write(to: &mut impl Write, text: &str) -> anyhow::Result<()> {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).map_err(failed)
}

/// The error of a failed write to the output: [`ReaderGone`], or another one.
pub(crate) fn failed(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::from(error).context("writing the output"),
    }
}

/// Writes a line with this program's name to standard error, with a reader or without. The caller escapes
/// control characters.
pub(crate) fn complain(line: impl Display) {
    let _ = io::stderr().write_all(format!("podvisor: {line}\n").as_bytes());
}

/// Writes a line about work that goes on, with a reader or without. Another failure of the output is kept
/// for [`unwritten`].
pub(crate) fn say(line: impl Display) {
    if let Err(error) = print(&format!("{line}\n"))
        && !error.is::<ReaderGone>()
    {
        UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// The first failure of a line of [`say`] but for the want of a reader. The work is done, but its output is
/// not whole.
pub(crate) fn unwritten() -> Option<anyhow::Error> {
    UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Whether the output still has a reader, for a command with long pauses in its output. Does not block.
pub(crate) fn has_reader() -> bool {
    is_read(&io::stdout())
}

fn is_read(output: &impl AsFd) -> bool {
    // The kernel always reports a pipe without a reader, requested or not (poll(2), POLLERR).
    let mut polled = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut polled, PollTimeout::ZERO);
    !polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_seen_with_and_without_a_write() {
        let (reader, mut writer) = io::pipe().unwrap();
        write(&mut writer, "a line\n").unwrap();
        assert!(is_read(&writer));
        drop(reader);
        assert!(!is_read(&writer));
        assert!(write(&mut writer, "a line\n").unwrap_err().is::<ReaderGone>());
    }

    #[test]
    fn another_failure_of_the_output_is_an_error_of_its_own() {
        let mut full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let error = write(&mut full, "a line\n").unwrap_err();
        assert!(!error.is::<ReaderGone>() && error.to_string().contains("writing the output"), "{error:#}");
    }
}
