//! Exit statuses of commands for people, where they are not those of a container's process.

/// A command that failed before its process had a status, as in `docker run`, or in a part of what it was to do.
pub(crate) const PODVISOR_FAILED: u8 = 125;

/// A command that SIGINT ended, as of a process that it has killed (128 + 2).
pub(crate) const INTERRUPTED: u8 = 130;
