//! The log of a process that serves: lines on standard error, where systemd takes them up.

use std::io::{IsTerminal, stderr};

use runtime_traces::Traces;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Logs from now on what `PODVISOR_LOG` says, which is `info` where it is unset or cannot be read; spans of calls go to `traces` alone,
/// and without it nowhere: then none is made. Called once.
pub(crate) fn begin(traces: Option<&Traces>) {
    let wanted = EnvFilter::try_from_env("PODVISOR_LOG").unwrap_or_else(|_| "info".into());
    // The hint keeps what nobody logs from being looked at twice.
    let of_the_log = filter_fn(|metadata| !runtime_spans::is_of_calls(metadata));
    let wanted = wanted.and(of_the_log.with_max_level_hint(LevelFilter::TRACE));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .with_filter(wanted);
    tracing_subscriber::registry().with(traces.map(Traces::layer)).with(lines).init();
}
