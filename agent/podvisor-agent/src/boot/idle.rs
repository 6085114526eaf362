//! Last step: keeps an idle guest idle. Each wake-up of a guest also wakes the host, so the kernel's periodic
//! housekeeping is stretched or disabled, and free memory is not cached. This step must never change anything
//! visible to a container.

use std::fs;

use crate::fair_server;

/// Files under `/proc/sys`, and the values written.
const SETTINGS: [(&str, &str); 4] = [
    // kcompactd otherwise wakes every half second for proactive compaction (mm/compaction.c,
    // HPAGE_FRAG_CHECK_INTERVAL_MSEC). It still compacts on demand.
    ("vm/compaction_proactiveness", "0"),
    // Per-CPU counters are folded every second by default. Readers of /proc/vmstat may see older values.
    ("vm/stat_interval", "10"),
    // The flusher wakes every five seconds by default. The scratch disk is lost with the VM anyway.
    ("vm/dirty_writeback_centisecs", "3000"),
    // Freed pages stay in per-CPU lists and are not reported as free. By default the kernel lets the lists
    // grow to an eighth of all memory (mm/page_alloc.c, zone_set_pageset_high_and_batch) and shrinks them as
    // slowly as it folds counters. With this setting they hold at most a 256th of memory, or four batches of
    // 63 pages.
    ("vm/percpu_pagelist_high_fraction", "256"),
];

/// Writes the settings. A missing file is skipped: such a kernel has nothing to stretch.
pub(super) fn run() {
    for (file, value) in SETTINGS {
        if let Err(error) = fs::write(format!("/proc/sys/{file}"), value) {
            tracing::debug!(file, %error, "a kernel setting is not there");
        }
    }
    fair_server::stretch(1);
}
