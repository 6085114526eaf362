//! Exit statuses of commands of the CLI, unless they return that of a container's process.

/// The command failed before its process had a status, as in `docker run`, or a part of its work failed.
pub(crate) const PODVISOR_FAILED: u8 = 125;

/// SIGINT ended the command, as if it had killed the process (128 + 2).
pub(crate) const INTERRUPTED: u8 = 130;
