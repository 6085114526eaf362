//! A client's knowledge of its pod: pure, except for the ledger of disturbances, shared by all clients.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use proto_cri::v1::{ContainerState, ContainerStatus};
use tests_e2e::numbered;

/// The past disturbances. A failure is excused if one of them overlaps with the call.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Odd while something disturbs everybody.
    phase: AtomicU64,
    /// VMMs of pods available for killing: by pod, true if killed.
    vms: Mutex<BTreeMap<String, bool>>,
    /// Kills of the daemon.
    kills: AtomicUsize,
}

/// A moment before a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u64);

impl Ledger {
    /// Something disturbs everybody from now on.
    pub(super) fn begin(&self) {
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends [`Ledger::begin`].
    pub(super) fn end(&self) {
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// The daemon is about to be killed.
    pub(super) fn kill(&self) {
        self.kills.fetch_add(1, Ordering::SeqCst);
    }

    /// Kills of the daemon up to now.
    pub(super) fn kills(&self) -> usize {
        self.kills.load(Ordering::SeqCst)
    }

    pub(super) fn now(&self) -> Moment {
        Moment(self.phase.load(Ordering::SeqCst))
    }

    /// Returns true if a disturbance affected all clients at any time since then.
    pub(super) fn disturbed_since(&self, then: Moment) -> bool {
        then.0 % 2 == 1 || self.now().0 != then.0
    }

    /// The pod's VMM may be killed from now on.
    pub(super) fn offer(&self, pod: &str) {
        self.vms.lock().unwrap().insert(pod.to_owned(), false);
    }

    /// The pod is gone, or about to.
    pub(super) fn withdraw(&self, pod: &str) {
        self.vms.lock().unwrap().remove(pod);
    }

    /// Pods with a VMM available for killing.
    pub(super) fn offered(&self) -> Vec<String> {
        self.vms.lock().unwrap().iter().filter(|(_, lost)| !**lost).map(|(pod, _)| pod.clone()).collect()
    }

    /// Announces the death of the pod's VMM, unless the pod was withdrawn.
    pub(super) fn lose(&self, pod: &str) -> bool {
        self.vms.lock().unwrap().get_mut(pod).map(|lost| *lost = true).is_some()
    }

    /// Returns true if the pod's VMM was killed.
    pub(super) fn is_lost(&self, pod: &str) -> bool {
        self.vms.lock().unwrap().get(pod).copied().unwrap_or_default()
    }
}

/// Figures of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: usize,
    pub(super) failed_beside_disturbances: usize,
    pub(super) pods: usize,
    pub(super) containers: usize,
    pub(super) log_lines: usize,
    pub(super) log_bytes: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.calls += other.calls;
        self.failed_beside_disturbances += other.failed_beside_disturbances;
        self.pods += other.pods;
        self.containers += other.containers;
        self.log_lines += other.log_lines;
        self.log_bytes += other.log_bytes;
    }
}

/// How a container ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// Lines written by it.
    pub(super) lines: usize,
    /// The exit code.
    pub(super) code: i32,
}

/// How far a container is by the client's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Created,
    Started,
    Stopped,
}

/// A container as its client knows it.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) stage: Stage,
    /// None if it runs until it is stopped.
    pub(super) ending: Option<Ending>,
    /// Kills of the daemon before it was made.
    pub(super) kills_before: usize,
}

impl Container {
    /// Returns the error in a status, if any. `lost`: the pod's VMM was killed.
    pub(super) fn wrong(&self, status: &ContainerStatus, lost: bool) -> Option<String> {
        let (state, code) = (status.state(), status.exit_code);
        let right = match self.stage {
            Stage::Created => {
                state == ContainerState::ContainerCreated
                    || (lost && state != ContainerState::ContainerRunning)
            }
            Stage::Started => {
                state == ContainerState::ContainerRunning
                    || (state == ContainerState::ContainerExited
                        && (lost || self.ending.is_some_and(|ending| ending.code == code)))
            }
            Stage::Stopped => state == ContainerState::ContainerExited,
        };
        (!right).then(|| format!("{self:?}, lost {lost}: {status:?}"))
    }

    /// Returns the error in the log of an ended container, if any. `whole`: it wrote all its lines; `kills`:
    /// the daemon's kills up to now.
    pub(super) fn wrong_log(&self, log: &str, whole: bool, kills: usize) -> Option<String> {
        let lines = match numbered::lines(log, 1) {
            Ok(lines) => lines,
            Err(wrong) => return Some(format!("{}: {wrong}", self.id)),
        };
        let kills = kills - self.kills_before;
        if lines.again > kills {
            return Some(format!("{}: lines come again {} times after {kills} kills", self.id, lines.again));
        }
        let due = self.ending.filter(|_| whole).map(|ending| ending.lines);
        due.filter(|due| *due != lines.count).map(|due| format!("{}: {lines:?} in place of {due}", self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(stage: Stage) -> Container {
        Container { id: "c".into(), stage, ending: Some(Ending { lines: 2, code: 3 }), kills_before: 4 }
    }

    fn status(state: ContainerState, exit_code: i32) -> ContainerStatus {
        ContainerStatus { state: state.into(), exit_code, ..Default::default() }
    }

    #[test]
    fn a_state_that_nothing_explains_is_wrong() {
        let (running, exited) = (ContainerState::ContainerRunning, ContainerState::ContainerExited);
        assert_eq!(container(Stage::Started).wrong(&status(running, 0), false), None);
        assert_eq!(container(Stage::Started).wrong(&status(exited, 3), false), None);
        assert!(container(Stage::Started).wrong(&status(exited, 137), false).is_some());
        assert_eq!(container(Stage::Started).wrong(&status(exited, 137), true), None);
        assert!(container(Stage::Stopped).wrong(&status(running, 0), false).is_some());
        assert!(container(Stage::Created).wrong(&status(running, 0), true).is_some());
    }

    #[test]
    fn a_line_that_is_lost_doubled_or_torn_is_wrong() {
        let wrong = |log: &str| container(Stage::Started).wrong_log(log, true, 4);
        assert_eq!(wrong("T stdout F line 1\nT stdout F line 2\n"), None);
        for log in [
            "",
            "T stdout F line 2\n",
            "T stdout F line 1\nT stdout F line 1\n",
            "T stdout P li\nT stdout F ne 1\n",
        ] {
            assert!(wrong(log).is_some(), "{log:?}");
        }
        assert_eq!(container(Stage::Started).wrong_log("T stdout F line 1\n", false, 4), None);
        let again = "T stdout F line 1\nT stdout F line 1\nT stdout F line 2\n";
        assert!(wrong(again).is_some());
        assert_eq!(
            container(Stage::Started).wrong_log(again, true, 5),
            None,
            "the daemon was killed meanwhile"
        );
    }

    #[test]
    fn a_call_is_excused_by_a_disturbance_at_any_time_of_it() {
        let ledger = Ledger::default();
        let then = ledger.now();
        assert!(!ledger.disturbed_since(then));
        ledger.begin();
        let amid = ledger.now();
        ledger.end();
        assert!(ledger.disturbed_since(then) && ledger.disturbed_since(amid));
        assert!(!ledger.disturbed_since(ledger.now()));
    }
}
