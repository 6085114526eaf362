//! Collects every ended process, because PID 1 inherits them all, and reports each exit to the process's
//! watcher. No other part of the agent may wait for a process.
//!
//! A launch learns its process's pid only after the process exists, and perhaps after it ended. So the exits
//! of unwatched processes are stored during launches. They are dropped when no launch is left, because a pid
//! may be reused. For the same reason a launch ignores exits from before its own beginning.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Most stored exits of unwatched processes during launches: far more than processes end within one.
const EARLY_EXITS_MAX: usize = 1024;

/// A process's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Exit code, or 128 plus the number of the signal that ended the process.
    pub(crate) code: i32,
    /// Guest CLOCK_REALTIME when it was collected, nanoseconds.
    pub(crate) at_ns: i64,
}

/// Collects exits and reports them to watchers. Clones share one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reaper {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    watched: HashMap<i32, oneshot::Sender<Exit>>,
    early: VecDeque<Early>,
    /// Number of exits stored so far, including dropped ones.
    stored: u64,
    launches: usize,
}

/// The exit of a process without a watcher yet.
#[derive(Debug)]
struct Early {
    number: u64,
    pid: i32,
    exit: Exit,
}

/// A launch under way, held from before the process can exist until the process is watched.
#[derive(Debug)]
pub(crate) struct LaunchGuard {
    reaper: Reaper,
    /// Number of the first exit possible for this launch's process.
    since: u64,
}

impl Drop for LaunchGuard {
    fn drop(&mut self) {
        let mut table = self.reaper.table();
        table.launches -= 1;
        if table.launches == 0 {
            table.early.clear();
        }
    }
}

impl Reaper {
    /// Announces a launch.
    pub(crate) fn launch(&self) -> LaunchGuard {
        let mut table = self.table();
        table.launches += 1;
        LaunchGuard { reaper: self.clone(), since: table.stored }
    }

    /// Watches a process of a launch under way. The process may already have ended.
    pub(crate) fn watch(&self, launch: &LaunchGuard, pid: i32) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        // The newest exit, because another process may have had the pid before.
        let of_launch = |early: &Early| early.pid == pid && early.number >= launch.since;
        match table.early.iter().rposition(of_launch) {
            Some(position) => {
                if let Some(early) = table.early.remove(position) {
                    let _ = sender.send(early.exit);
                }
            }
            None => {
                table.watched.insert(pid, sender);
            }
        }
        receiver
    }

    /// Starts to collect. Must be called within the runtime, before the first launch.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let signal = signal(SignalKind::child())?;
        tokio::spawn(self.clone().run(signal));
        Ok(())
    }

    async fn run(self, mut signal: Signal) {
        // One signal may stand for many exits, and processes may have ended before the first signal.
        loop {
            self.collect();
            if signal.recv().await.is_none() {
                return;
            }
        }
    }

    fn collect(&self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(code) = code(status) {
                        self.ended(pid.as_raw_pid(), Exit { code, at_ns: realtime_ns() });
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "ended processes cannot be collected");
                    return;
                }
            }
        }
    }

    fn ended(&self, pid: i32, exit: Exit) {
        let mut table = self.table();
        if let Some(watcher) = table.watched.remove(&pid) {
            // The watcher may be gone.
            let _ = watcher.send(exit);
        } else if table.launches > 0 {
            if table.early.len() == EARLY_EXITS_MAX {
                table.early.pop_front();
            }
            let number = table.stored;
            table.stored += 1;
            table.early.push_back(Early { number, pid, exit });
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The code of an ended process, for any signal. Signals above 31 have no names, but end processes, too.
/// `None` if the process has not ended.
fn code(status: WaitStatus) -> Option<i32> {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))
}

fn realtime_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    fn exit(code: i32) -> Exit {
        Exit { code, at_ns: 1 }
    }

    #[test]
    fn a_watched_end_is_reported() {
        let reaper = Reaper::default();
        let launch = reaper.launch();
        let mut watch = reaper.watch(&launch, 7);
        reaper.ended(7, exit(3));
        assert_eq!(watch.try_recv().unwrap(), exit(3));
    }

    #[test]
    fn an_end_before_the_watch_is_reported_during_a_launch() {
        let reaper = Reaper::default();
        let launch = reaper.launch();
        reaper.ended(7, exit(3));
        assert_eq!(reaper.watch(&launch, 7).try_recv().unwrap(), exit(3));
    }

    #[test]
    fn an_end_outside_any_launch_is_not_taken_for_a_later_process() {
        let reaper = Reaper::default();
        reaper.ended(7, exit(3));
        let first = reaper.launch();
        assert!(reaper.watch(&first, 7).try_recv().is_err());
        reaper.ended(8, exit(4));
        drop(first);
        let second = reaper.launch();
        assert!(reaper.watch(&second, 8).try_recv().is_err());
    }

    #[test]
    fn an_end_of_an_earlier_process_is_not_taken_for_a_later_one_with_its_pid() {
        let reaper = Reaper::default();
        let longer = reaper.launch();
        reaper.ended(7, exit(3));
        let launch = reaper.launch();
        let mut watch = reaper.watch(&launch, 7);
        assert!(watch.try_recv().is_err());
        reaper.ended(7, exit(4));
        assert_eq!(watch.try_recv().unwrap(), exit(4));
        // If a pid occurs twice, the later exit is the new process's.
        reaper.ended(8, exit(5));
        reaper.ended(8, exit(6));
        assert_eq!(reaper.watch(&longer, 8).try_recv().unwrap(), exit(6));
    }

    #[test]
    fn every_signal_that_ends_a_process_is_in_its_code() {
        // SIGKILL, the first signal left to programs by a C library, and the last of all.
        for signal in [9, 34, 64] {
            let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            agent_container::syscall::kill(pid, signal).unwrap();
            // Waits only for this child, because other tests of this process have children, too.
            let (_, status) =
                rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap().unwrap();
            child.wait().expect_err("it is collected already");
            assert_eq!(code(status), Some(128 + i32::try_from(signal).unwrap()));
        }
        let mut stopped = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(stopped.id()).unwrap();
        agent_container::syscall::kill(pid, 19).unwrap();
        let (_, status) =
            rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert_eq!(code(status), None);
        stopped.kill().unwrap();
        stopped.wait().unwrap();
    }

    #[test]
    fn unwatched_ends_are_bounded() {
        let reaper = Reaper::default();
        let _launch = reaper.launch();
        for pid in 0..i32::try_from(EARLY_EXITS_MAX).unwrap() * 2 {
            reaper.ended(pid, exit(0));
        }
        assert_eq!(reaper.table().early.len(), EARLY_EXITS_MAX);
    }
}
