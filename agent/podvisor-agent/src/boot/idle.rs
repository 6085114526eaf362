//! Keeps an idle guest at rest: the kernel's periodic house-keeping is stretched or switched off, since
//! each wake-up of each guest is one of the host's. It must never trade away anything that a container
//! could notice.

use std::fs;

/// Files under `/proc/sys`, what is written, and why.
const SETTINGS: [(&str, &str); 3] = [
    // kcompactd looks for work every half second while it compacts ahead of need
    // (mm/compaction.c, HPAGE_FRAG_CHECK_INTERVAL_MSEC); on demand it still does.
    ("vm/compaction_proactiveness", "0"),
    // Per-CPU counters are folded once a second; readers of /proc/vmstat may wait a little.
    ("vm/stat_interval", "10"),
    // The flusher wakes every five seconds; the scratch disk is lost with the VM anyway.
    ("vm/dirty_writeback_centisecs", "3000"),
];

/// Writes them. A kernel without one of them has nothing to be kept from.
pub(super) fn run() {
    for (file, value) in SETTINGS {
        if let Err(error) = fs::write(format!("/proc/sys/{file}"), value) {
            tracing::debug!(file, %error, "a kernel setting is not there");
        }
    }
}
