//! One process with an id known to the host: a container's first one, or an exec, with its streams and its
//! end. This module starts nothing; [`crate::launcher`] does.
//!
//! ```text
//!   running ──reaped──▶ ending ──(the first process only: rest of the cgroup killed)──▶ ended
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_container::cgroup::Cgroup;
use agent_container::syscall;
use proto_agent::agent::ExitReason;
use tokio::sync::{oneshot, watch};

use crate::reaper::Exit;
use crate::shared::Shared;
use crate::streams::{Input, ProcessOutput};

/// Timeout of the wait for killed processes (their writes count, too), and the pause between two reads of
/// their cgroup.
const GONE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);
/// Timeout for the host to open a command's outputs. The host itself gives up after 30 s for a connection and
/// another 30 s for its answer (`runtime/guest`), and a command has two outputs.
const CLAIMED: Duration = Duration::from_secs(120);
/// Timeout for a command's end after each signal once its host is gone.
const HUNG_UP: Duration = Duration::from_secs(5);

/// A process's end, as answered by Wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) reason: ExitReason,
}

impl Ended {
    /// `oom_killed` is true if the kernel killed a process of the container for lack of memory while this one
    /// ran.
    fn new(exit: Exit, oom_killed: bool) -> Ended {
        let reason = match exit.code {
            _ if oom_killed => ExitReason::EXIT_REASON_OOM_KILLED,
            0 => ExitReason::EXIT_REASON_COMPLETED,
            _ => ExitReason::EXIT_REASON_ERROR,
        };
        Ended { exit, reason }
    }
}

/// One process, followed to its end.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    cgroup: Cgroup,
    ended: watch::Receiver<Option<Ended>>,
    pub(crate) stdin: Option<Arc<Input>>,
    /// Standard output, or a terminal's output.
    pub(crate) stdout: ProcessOutput,
    pub(crate) stderr: Option<ProcessOutput>,
    /// Whether the host knows the process's end.
    reported: AtomicBool,
    /// Whether the process was collected. From then on its pid may be another process's.
    collected: Arc<AtomicBool>,
}

/// A process's streams, made before or with it.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) stdin: Option<Arc<Input>>,
    pub(crate) stdout: ProcessOutput,
    pub(crate) stderr: Option<ProcessOutput>,
    /// Set to true when the process has ended.
    pub(crate) ended: watch::Sender<bool>,
}

/// The process's role in its container. It decides the consequences of its end.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// The container ends with this process. The rest of the cgroup is killed, and all its writes to the
    /// host's files are complete before the end is reported.
    First { shared: Option<Arc<Shared>> },
    /// A command. Other processes may outlive it.
    Exec,
}

impl Process {
    /// Follows a process from its start to its end.
    pub(crate) fn follow(
        pid: i32,
        exit: oneshot::Receiver<Exit>,
        streams: Streams,
        cgroup: Cgroup,
        role: Role,
    ) -> Arc<Process> {
        let (sender, ended) = watch::channel(None);
        let Streams { stdin, stdout, stderr, ended: streams_ended } = streams;
        // A container's count begins at zero. An exec counts from its own start.
        let (whole, input) = (cgroup.clone(), stdin.clone());
        let collected = Arc::new(AtomicBool::new(false));
        let was_collected = Arc::clone(&collected);
        let kills_before = if matches!(role, Role::Exec) { cgroup.oom_kills() } else { 0 };
        tokio::spawn(async move {
            // The reaper lives as long as the agent.
            let Ok(exit) = exit.await else { return };
            was_collected.store(true, Ordering::SeqCst);
            if matches!(role, Role::First { .. })
                && let Err(error) = cgroup.kill()
            {
                tracing::warn!(%error, "the remaining processes of an ended container cannot be killed");
            }
            let oom_killed = cgroup.oom_kills() > kills_before;
            let _ = streams_ended.send(true);
            if let Some(input) = input {
                input.release().await;
            }
            if let Role::First { shared: Some(shared) } = role {
                wait_until_empty(&cgroup).await;
                shared.sync().await;
            }
            let _ = sender.send(Some(Ended::new(exit, oom_killed)));
        });
        Arc::new(Process {
            pid,
            cgroup: whole,
            ended,
            stdin,
            stdout,
            stderr,
            reported: AtomicBool::new(false),
            collected,
        })
    }

    /// Pid in the guest's own namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the process's end. Returns `None` if it is no longer followed.
    pub(crate) async fn wait(&self) -> Option<Ended> {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.ok()?;
        *ended
    }

    /// Returns true if the process has ended, and its end is complete: for a container with all its writes.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Returns true if the process itself is gone. Its pid may be another process's from then on.
    pub(crate) fn is_collected(&self) -> bool {
        self.collected.load(Ordering::SeqCst)
    }

    /// Returns true if the process has ended and the host has all its output.
    pub(crate) fn output_delivered(&self) -> bool {
        self.has_ended() && self.stdout.finished() && self.stderr.as_ref().is_none_or(ProcessOutput::finished)
    }

    /// Notes that the host knows the process's end.
    pub(crate) fn mark_reported(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Returns true if the host has the process's end and all its output.
    pub(crate) fn is_delivered(&self) -> bool {
        self.reported.load(Ordering::Relaxed) && self.output_delivered()
    }

    /// Waits until the host has opened all of the command's outputs. Returns false on timeout: a host with
    /// the command's id would have come.
    pub(crate) async fn is_claimed(&self) -> bool {
        let outputs = async {
            self.stdout.claimed().await;
            if let Some(stderr) = &self.stderr {
                stderr.claimed().await;
            }
        };
        tokio::time::timeout(CLAIMED, outputs).await.is_ok()
    }

    /// Ends a process after its host is gone: SIGHUP, like a closing terminal, and then SIGKILL.
    pub(crate) async fn hang_up(&self) {
        for signal in [nix::libc::SIGHUP, nix::libc::SIGKILL] {
            if let Err(error) = self.signal_tree(signal.unsigned_abs()) {
                tracing::warn!(%error, pid = self.pid, "cannot signal a command after its host is gone");
            }
            if tokio::time::timeout(HUNG_UP, self.wait()).await.is_ok() {
                return;
            }
        }
        tracing::warn!(pid = self.pid, "a command does not end after its host is gone");
    }

    /// Signals the process, its descendants, and its session. The agent starts each process as a session
    /// leader. It is no error if the process has ended; orphans of an ended process are not searched for.
    /// Returns the processes signalled last.
    pub(crate) fn signal_tree(&self, signal: u32) -> std::io::Result<Vec<i32>> {
        if self.is_collected() {
            return Ok(Vec::new());
        }
        self.cgroup.signal_tree(self.pid, signal)
    }

    /// Signals the process. It is no error if the process has ended. Collecting and signalling are work of
    /// one thread: a process that was not collected still has its pid.
    pub(crate) fn signal(&self, signal: u32) -> std::io::Result<()> {
        if self.is_collected() {
            return Ok(());
        }
        match syscall::kill(self.pid, signal) {
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Ok(()),
            other => other,
        }
    }
}

/// Waits briefly for the killed processes of a cgroup. One may wait for a disk forever.
async fn wait_until_empty(cgroup: &Cgroup) {
    let gone = async {
        while cgroup.populated().unwrap_or(false) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    if tokio::time::timeout(GONE, gone).await.is_err() {
        tracing::warn!("killed processes of a container are not gone yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reason_follows_the_code_unless_memory_ran_out() {
        let reason = |code, oom_killed| Ended::new(Exit { code, at_ns: 1 }, oom_killed).reason;
        assert_eq!(reason(0, false), ExitReason::EXIT_REASON_COMPLETED);
        assert_eq!(reason(137, false), ExitReason::EXIT_REASON_ERROR);
        assert_eq!(reason(137, true), ExitReason::EXIT_REASON_OOM_KILLED);
        assert_eq!(reason(0, true), ExitReason::EXIT_REASON_OOM_KILLED);
    }
}
