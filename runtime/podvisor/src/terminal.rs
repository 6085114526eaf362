//! This process's own terminal: raw while a session has it, and its size.

use std::io::{self, IsTerminal};

use nix::sys::termios::{self, SetArg, Termios};

/// The terminal at standard input, raw: what is typed goes to the other side as it is, and comes back from there
/// alone. Dropping it gives the terminal back as it was.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// `None` where standard input is no terminal.
    ///
    /// # Errors
    /// The terminal does not take it.
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
        // A terminal that is gone needs nothing back.
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// Columns and rows, where there is a terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let (rows, columns) = console::Term::stdout().size_checked()?;
    Some((columns, rows))
}
