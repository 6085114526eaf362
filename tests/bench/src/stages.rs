//! The time of each thread on a stream's way during the stream. If each of them has its own processor, the
//! busiest sets the stream's rate; on one processor, all of them together do.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

/// The processes with the observed threads.
#[derive(Debug)]
pub(crate) struct Stages(Vec<u32>);

/// How long each thread has run, by its process and number.
#[derive(Debug)]
pub(crate) struct Ran(HashMap<(u32, String), Thread>);

#[derive(Debug)]
struct Thread {
    name: String,
    ran: Duration,
}

/// The busiest thread, and its time.
#[derive(Debug)]
pub(crate) struct Busiest {
    pub(crate) thread: String,
    pub(crate) ran: Duration,
}

impl Stages {
    /// The stages in these processes, and in this one, the receiver of the stream.
    pub(crate) fn of(pids: impl IntoIterator<Item = u32>) -> Stages {
        Stages(pids.into_iter().chain([std::process::id()]).collect())
    }

    /// Reads how long each thread has run up to now, to the nanosecond: the first figure of
    /// `/proc/<pid>/task/<tid>/schedstat` (Documentation/scheduler/sched-stats.rst).
    pub(crate) fn look(&self) -> anyhow::Result<Ran> {
        let mut ran = HashMap::new();
        for &pid in &self.0 {
            let tasks = PathBuf::from(format!("/proc/{pid}/task"));
            for task in fs::read_dir(&tasks).with_context(|| format!("reading {}", tasks.display()))? {
                let task = task?;
                // A thread may end between the two.
                let (Ok(name), Ok(figures)) = (
                    fs::read_to_string(task.path().join("comm")),
                    fs::read_to_string(task.path().join("schedstat")),
                ) else {
                    continue;
                };
                let nanoseconds = figures.split_whitespace().next().unwrap_or_default().parse();
                let nanoseconds = nanoseconds.with_context(|| format!("the schedstat of {name:?}"))?;
                let thread =
                    Thread { name: name.trim_end().to_owned(), ran: Duration::from_nanos(nanoseconds) };
                ran.insert((pid, task.file_name().to_string_lossy().into_owned()), thread);
            }
        }
        Ok(Ran(ran))
    }
}

impl Ran {
    /// The busiest thread since an earlier look.
    pub(crate) fn busiest_since(&self, earlier: &Ran) -> anyhow::Result<Busiest> {
        let threads = self.0.iter().map(|(id, thread)| {
            let before = earlier.0.get(id).map_or(Duration::ZERO, |thread| thread.ran);
            Busiest { thread: thread.name.clone(), ran: thread.ran.saturating_sub(before) }
        });
        threads.max_by_key(|thread| thread.ran).context("no thread of the stream's processes is there")
    }
}
