//! This process's terminal: raw mode during a session, and its size. Nothing here reads or writes it.

use std::io::{self, IsTerminal};

use nix::sys::termios::{self, SetArg, Termios};

/// The terminal at standard input in raw mode: keys go to the other side unchanged, and only the other side
/// echoes them. Dropping this restores the terminal.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// Enters raw mode. Returns `None` if standard input is no terminal.
    ///
    /// # Errors
    /// The terminal refuses raw mode.
    pub(crate) fn enter() -> io::Result<Option<Raw>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&stdin, SetArg::TCSADRAIN, &raw)?;
        Ok(Some(Raw { before }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A closed terminal needs nothing restored.
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// Returns columns and rows, if there is a terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let (rows, columns) = console::Term::stdout().size_checked()?;
    Some((columns, rows))
}
