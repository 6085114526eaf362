//! The scheduler's fair server, which gives ordinary tasks a twentieth of a processor that real-time tasks would keep for themselves
//! (kernel/sched/deadline.c, `dl_server`). The server's timer fires a period after any activity, and what that tick wakes is the next activity: with
//! the kernel's period of a second, an idle guest wakes three times a second for it. The share stays; the period becomes the longest one.
//!
//! The setting is in debugfs alone, which no container gets to see: the file system is never mounted anywhere.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Longest period that the kernel takes, below 2^22 microseconds, in nanoseconds (kernel/sched/debug.c).
const PERIOD_NS: u64 = 4_000_000_000;

/// A twentieth, as the kernel's own, in nanoseconds.
const RUNTIME_NS: u64 = PERIOD_NS / 20;

/// Stretches the period on the first processors. A processor takes it only while it is online, and a kernel without the setting has
/// nothing to stretch.
pub(crate) fn stretch(processors: u32) {
    static DEBUGFS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let Some(debugfs) = DEBUGFS.get_or_init(|| reach().ok()) else { return };
    for processor in 0..processors {
        // The period first: a runtime is never longer than its period.
        for (setting, value) in [("period", PERIOD_NS), ("runtime", RUNTIME_NS)] {
            if let Err(error) = set(debugfs, processor, setting, value) {
                tracing::debug!(processor, setting, %error, "the fair server stays as it is");
                return;
            }
        }
    }
}

/// Opens debugfs without a place for it.
fn reach() -> io::Result<OwnedFd> {
    let context = fsopen("debugfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn set(debugfs: &OwnedFd, processor: u32, setting: &str, value: u64) -> io::Result<()> {
    let path = format!("sched/fair_server/cpu{processor}/{setting}");
    let file = openat(debugfs, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).write_all(value.to_string().as_bytes())
}
