//! The scheduler's fair server. It guarantees ordinary tasks a twentieth of each processor against real-time
//! tasks (kernel/sched/deadline.c, `dl_server`). Its timer fires one period after any activity, and the work
//! woken by that tick is the next activity. With the kernel's period of one second, an idle guest wakes three
//! times a second for it. This module keeps the share, but sets the longest period.
//!
//! The setting exists only in debugfs. The file system is never mounted anywhere, so no container can see it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Longest period accepted by the kernel, below 2^22 microseconds, in nanoseconds (kernel/sched/debug.c).
const PERIOD_NS: u64 = 4_000_000_000;

/// Runtime in nanoseconds: a twentieth, the same share as the kernel's.
const RUNTIME_NS: u64 = PERIOD_NS / 20;

/// Stretches the period on the first processors. A processor accepts it only while it is online. A kernel
/// without the setting has nothing to stretch.
pub(crate) fn stretch(processors: u32) {
    static DEBUGFS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let Some(debugfs) = DEBUGFS.get_or_init(|| reach().ok()) else { return };
    for processor in 0..processors {
        // The period first, because a runtime must not be longer than its period.
        for (setting, value) in [("period", PERIOD_NS), ("runtime", RUNTIME_NS)] {
            if let Err(error) = set(debugfs, processor, setting, value) {
                tracing::debug!(processor, setting, %error, "the fair server stays as it is");
                return;
            }
        }
    }
}

/// Opens debugfs without mounting it anywhere.
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
