//! The output of containers, and their logs.

use std::path::{Path, PathBuf};

/// Number of stdout lines of every container: more bytes than a broken stream lets through.
const LINES: usize = 120;

/// The output of every container.
pub(super) fn output() -> Vec<u8> {
    (0..LINES).map(|number| format!("line {number:04}\n")).collect::<String>().into_bytes()
}

/// The unfinished line left by a daemon killed within a write.
pub(super) const TORN: &str = "2026-11-22T00:00:00.000000000Z stdout F li";

/// The past of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// The program has ended by itself, so all its lines are there.
    pub(super) whole: bool,
    /// A daemon was killed while the program ran: unacknowledged lines come again, from any line on.
    pub(super) killed: bool,
}

/// Reads a log, beginning with its moved files.
pub(super) fn read(moved: &[PathBuf], log: &Path) -> String {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    moved.iter().map(|path| read(path)).chain([read(log)]).collect()
}

/// Checks a log: whole lines, none left out, each once and in order.
///
/// # Errors
/// The first unexpected line, or the first missing one.
pub(super) fn check(text: &str, past: Past) -> Result<(), String> {
    let mut next = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        let fields: Vec<&str> = line.trim_end_matches('\n').splitn(4, ' ').collect();
        let said = fields.get(3).copied().unwrap_or_default();
        let number = said.strip_prefix("line ").filter(|number| number.len() == 4);
        let number = number.and_then(|number| number.parse::<usize>().ok());
        match number {
            Some(number) if line.ends_with('\n') && (number == next || (past.killed && number < next)) => {
                next = number + 1;
            }
            // A line being written now, or when its daemon was killed.
            _ if is_last && !past.whole && !line.ends_with('\n') => {}
            // A VM's end may stop its programs within a line.
            _ if is_last && !past.whole && fields.get(2) == Some(&"P") => {}
            _ => {
                return Err(format!(
                    "a log has lines lost, doubled or torn: {line:?} in the place of line {next}"
                ));
            }
        }
    }
    if past.whole && next != LINES {
        return Err(format!("a log ends before line {next} of {LINES}"));
    }
    Ok(())
}
