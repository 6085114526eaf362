//! What a run leaves behind in this process: no thread and no descriptor.

use std::fs;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Longest that a thread may take to end whose handle is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads and descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    threads: usize,
    descriptors: usize,
}

fn count(directory: &str) -> usize {
    fs::read_dir(directory).expect("a process has this").count()
}

fn counts() -> Counts {
    Counts { threads: count("/proc/self/task"), descriptors: count("/proc/self/fd") }
}

/// Fails where there is more than there was after the first run.
pub fn check() {
    static FIRST: OnceLock<Counts> = OnceLock::new();
    let first = FIRST.get_or_init(counts);
    let begin = Instant::now();
    loop {
        let now = counts();
        // The fuzzer has files and threads of its own, which come and go.
        if now.threads <= first.threads && now.descriptors <= first.descriptors + 8 {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "left behind: {now:?} where {first:?} was");
        thread::yield_now();
    }
}
