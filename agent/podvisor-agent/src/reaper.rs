//! Collects every process that ends, since PID 1 inherits them all, and reports each end to the process's watcher.
//! Nothing else in the agent may wait for a process.
//!
//! A launch learns its process's pid only after the process exists, and perhaps after it ended. So while a launch is
//! under way the ends of unwatched processes are stored; when no launch is left they are dropped, since a pid may be
//! used again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Most ends of unwatched processes that are stored while launches are under way: far more than end within one.
const EARLY_EXITS_MAX: usize = 1024;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Exit code, or 128 plus the number of the signal that ended the process.
    pub(crate) code: i32,
    /// Guest CLOCK_REALTIME when it was collected, nanoseconds.
    pub(crate) at_ns: i64,
}

/// Collects ends and reports them to watchers. Clones share one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reaper {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    watched: HashMap<i32, oneshot::Sender<Exit>>,
    early: VecDeque<(i32, Exit)>,
    launches: usize,
}

/// A launch under way, held from before the process can exist until the process is watched.
#[derive(Debug)]
pub(crate) struct LaunchGuard {
    reaper: Reaper,
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
        self.table().launches += 1;
        LaunchGuard { reaper: self.clone() }
    }

    /// Watches a process of a launch under way, which may have ended already.
    pub(crate) fn watch(&self, _launch: &LaunchGuard, pid: i32) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        match table.early.iter().position(|(early, _)| *early == pid) {
            Some(position) => {
                if let Some((_, exit)) = table.early.remove(position) {
                    let _ = sender.send(exit);
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
        // One signal may stand for many ends, and processes may have ended before the first signal.
        loop {
            self.collect();
            if signal.recv().await.is_none() {
                return;
            }
        }
    }

    fn collect(&self) {
        loop {
            let (pid, code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(errno) => {
                    // nix has no name for real-time signals; the process is collected all the same.
                    tracing::warn!(%errno, "a process was ended by a signal without a name");
                    continue;
                }
            };
            self.ended(pid, Exit { code, at_ns: realtime_ns() });
        }
    }

    fn ended(&self, pid: Pid, exit: Exit) {
        let mut table = self.table();
        if let Some(watcher) = table.watched.remove(&pid.as_raw()) {
            // The watcher may be gone.
            let _ = watcher.send(exit);
        } else if table.launches > 0 {
            if table.early.len() == EARLY_EXITS_MAX {
                table.early.pop_front();
            }
            table.early.push_back((pid.as_raw(), exit));
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn realtime_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> Exit {
        Exit { code, at_ns: 1 }
    }

    #[test]
    fn a_watched_end_is_reported() {
        let reaper = Reaper::default();
        let launch = reaper.launch();
        let mut watch = reaper.watch(&launch, 7);
        reaper.ended(Pid::from_raw(7), exit(3));
        assert_eq!(watch.try_recv().unwrap(), exit(3));
    }

    #[test]
    fn an_end_before_the_watch_is_reported_during_a_launch() {
        let reaper = Reaper::default();
        let launch = reaper.launch();
        reaper.ended(Pid::from_raw(7), exit(3));
        assert_eq!(reaper.watch(&launch, 7).try_recv().unwrap(), exit(3));
    }

    #[test]
    fn an_end_outside_any_launch_is_not_taken_for_a_later_process() {
        let reaper = Reaper::default();
        reaper.ended(Pid::from_raw(7), exit(3));
        let first = reaper.launch();
        assert!(reaper.watch(&first, 7).try_recv().is_err());
        reaper.ended(Pid::from_raw(8), exit(4));
        drop(first);
        let second = reaper.launch();
        assert!(reaper.watch(&second, 8).try_recv().is_err());
    }

    #[test]
    fn unwatched_ends_are_bounded() {
        let reaper = Reaper::default();
        let _launch = reaper.launch();
        for pid in 0..i32::try_from(EARLY_EXITS_MAX).unwrap() * 2 {
            reaper.ended(Pid::from_raw(pid), exit(0));
        }
        assert_eq!(reaper.table().early.len(), EARLY_EXITS_MAX);
    }
}
