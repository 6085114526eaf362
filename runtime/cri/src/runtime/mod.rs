//! RPCs about the runtime itself, one file each.

mod conditions;
pub(crate) mod config;
mod features;
pub(crate) mod status;
pub(crate) mod update_config;
pub(crate) mod version;
pub(crate) mod watchdog;

/// CLOCK_REALTIME in nanoseconds since the epoch, like CRI's timestamps.
pub(crate) fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
