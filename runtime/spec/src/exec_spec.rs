//! A command that a client asks to run in a container. Types only; `plan/exec.rs` resolves them.

/// One more command in a running container, as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Give the command a terminal.
    pub tty: bool,
    /// Give the command an input; without one its standard input is `/dev/null`.
    pub stdin: bool,
}
