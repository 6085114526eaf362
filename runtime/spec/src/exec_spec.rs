//! A client's command for a container. Only types; `plan/exec.rs` resolves them.

/// One more command in a running container, as requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Give the command a terminal.
    pub tty: bool,
    /// Give the command an input. Otherwise its standard input is `/dev/null`.
    pub stdin: bool,
}
