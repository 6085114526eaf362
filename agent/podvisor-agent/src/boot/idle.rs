//! Last step: keeps an idle guest idle. The kernel's periodic house-keeping is stretched or switched off, since each
//! wake-up of a guest is one of the host's, and what is free is not held back. This step must never change anything that a container could notice.

use std::fs;

use crate::fair_server;

/// Files under `/proc/sys`, and the values written.
const SETTINGS: [(&str, &str); 4] = [
    // kcompactd looks for work every half second while it compacts ahead of need
    // (mm/compaction.c, HPAGE_FRAG_CHECK_INTERVAL_MSEC); on demand it still compacts.
    ("vm/compaction_proactiveness", "0"),
    // Per-CPU counters are folded once a second; readers of /proc/vmstat may wait a little.
    ("vm/stat_interval", "10"),
    // The flusher wakes every five seconds; the scratch disk is lost with the VM anyway.
    ("vm/dirty_writeback_centisecs", "3000"),
    // What a program frees waits in lists of each CPU, which the kernel lets grow to an eighth of all memory
    // (mm/page_alloc.c, zone_set_pageset_high_and_batch) and shrinks as slowly as it folds counters: memory there is not
    // reported as free. With this they have at most a 256th, or four batches of 63 pages.
    ("vm/percpu_pagelist_high_fraction", "256"),
];

/// Writes the settings. A kernel without one of the files has nothing to stretch.
pub(super) fn run() {
    for (file, value) in SETTINGS {
        if let Err(error) = fs::write(format!("/proc/sys/{file}"), value) {
            tracing::debug!(file, %error, "a kernel setting is not there");
        }
    }
    fair_server::stretch(1);
}
