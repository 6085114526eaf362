//! The log of a process that serves: lines on standard error, where systemd takes them up.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Logs from now on what `PODVISOR_LOG` says, which is `info` where it is unset or cannot be read. Called once.
pub(crate) fn begin() {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("PODVISOR_LOG").unwrap_or_else(|_| "info".into()))
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
}
