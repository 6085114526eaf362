//! Processes in the guest: the targets of signals, and how a process ended.

use runtime_spec::ExitReason;

/// Processes of a container that receive a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget<'a> {
    /// The container's first process alone.
    FirstProcess,
    /// Every process of the container, through its cgroup.
    Container,
    /// The command with this exec id and everything descended from it or in its session.
    Exec(&'a str),
}

/// A process's end as the agent reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// Exit code 0..=255; 128 + signal number if a signal ended the process.
    pub exit_code: i32,
    /// Why the process ended.
    pub reason: ExitReason,
    /// The guest's clock at the end, nanoseconds since the epoch; 0 if the agent did not report it.
    pub exited_at_ns: i64,
}
