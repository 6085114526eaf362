//! The conditions of Status beside RuntimeReady and NetworkReady. Each is about a problem for the operator to
//! see. All have the polarity of CRI's own: `true` is good. A kubelet acts only on RuntimeReady and
//! NetworkReady, and logs the others (kubelet `updateRuntimeUp`). So none of them takes a node with running
//! pods out of service. `../upstream/status.rs` makes the upstream's condition. Pure; `status.rs` collects
//! the facts.
//! | condition | does not hold while |
//! |---|---|
//! | `KvmReady` | KVM cannot be opened |
//! | `StateDiskReady` | the disk of the state is full, does not answer, or takes no records |
//! | `RecordsReadable` | values on disk are in quarantine |
//! | `PodsRecovered` | pods of an earlier daemon were lost, are in doubt, or are still being recovered |
//! | `PodsClean` | leftovers of pods could not be removed |
//! | `WatchdogOnTime` | the daemon does not answer itself in time; only with a service manager's watchdog |

use std::sync::Arc;

use proto_cri::v1;
use runtime_pod::{ContainerState, ContainerView, PodView};

/// Least free bytes of the state's disk. With fewer it counts as full. A pod's start and an image's layers
/// need more.
const FREE_BYTES_MIN: u64 = 32 << 20;

/// Most names in one message. Clients show it on one line.
const NAMED_MAX: usize = 5;

/// The daemon's knowledge of itself.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) kvm: Result<(), String>,
    pub(super) disk: Disk,
    /// Reason why records cannot be written.
    pub(super) records: Option<String>,
    /// Names of values in quarantine.
    pub(super) quarantined: Vec<String>,
    pub(super) pods: Vec<Arc<PodView>>,
    pub(super) containers: Vec<Arc<ContainerView>>,
    /// Pods still being recovered.
    pub(super) recovering: Vec<Arc<PodView>>,
    /// Outcome of the daemon's own health check. `None` without a watchdog.
    pub(super) watchdog: Option<Result<(), String>>,
}

/// The disk of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Disk {
    /// So many bytes are free.
    Free(u64),
    /// The disk cannot be read.
    Failed(String),
    /// No answer yet.
    Silent,
}

/// A reason and a message.
type Problem = (&'static str, String);

/// The conditions, always in the same order.
pub(super) fn conditions(known: &Known) -> Vec<v1::RuntimeCondition> {
    let mut all = vec![
        condition("KvmReady", kvm(known)),
        condition("StateDiskReady", disk(known)),
        condition("RecordsReadable", quarantine(known)),
        condition("PodsRecovered", recovery(known)),
        condition("PodsClean", leftovers(known)),
    ];
    if let Some(outcome) = &known.watchdog {
        let late =
            |why: &String| ("AnswersLate", format!("the daemon does not answer itself in time: {why}"));
        all.push(condition("WatchdogOnTime", outcome.as_ref().err().map(late)));
    }
    all
}

/// A condition. A `problem` gives its reason and message, and makes it false.
pub(super) fn condition(name: &str, problem: Option<Problem>) -> v1::RuntimeCondition {
    let status = problem.is_none();
    let (reason, message) = problem.unwrap_or_default();
    v1::RuntimeCondition { r#type: name.into(), status, reason: reason.into(), message }
}

fn kvm(known: &Known) -> Option<Problem> {
    let why = known.kvm.as_ref().err()?;
    Some(("KvmNotUsable", format!("no pod can be started: {why}")))
}

fn disk(known: &Known) -> Option<Problem> {
    if known.disk == Disk::Silent {
        return Some(("StateDiskNotAnswering", "the disk of paths.state does not answer".to_owned()));
    }
    if let Some(why) = &known.records {
        return Some(("RecordsNotWritable", format!("the disk of paths.state takes no records: {why}")));
    }
    match &known.disk {
        Disk::Failed(why) => {
            Some(("StateDiskFailed", format!("the disk of paths.state cannot be asked: {why}")))
        }
        Disk::Free(bytes) if *bytes < FREE_BYTES_MIN => {
            let text = format!("the disk of paths.state is full: {} MiB are free", bytes >> 20);
            Some(("StateDiskFull", text))
        }
        Disk::Free(_) | Disk::Silent => None,
    }
}

fn quarantine(known: &Known) -> Option<Problem> {
    let values = &known.quarantined;
    let text =
        || format!("values on disk could not be read and are in quarantine: {}", listed(values.clone()));
    (!values.is_empty()).then(|| ("RecordsInQuarantine", text()))
}

fn recovery(known: &Known) -> Option<Problem> {
    let lost: Vec<_> = known.pods.iter().filter(|pod| pod.lost).map(|pod| pod_name(pod)).collect();
    let unknown = known.containers.iter().filter(|container| container.state == ContainerState::Unknown);
    let unknown: Vec<_> = unknown.map(|container| container_name(known, container)).collect();
    let recovering: Vec<_> = known.recovering.iter().map(|pod| pod_name(pod)).collect();
    let problems = [
        ("VmsNotFound", "VMs were not found again at the daemon's start", lost),
        ("ContainersUnknown", "it is not known whether containers run", unknown),
        ("RecoveryUnderWay", "pods are still being recovered", recovering),
    ];
    let problems: Vec<_> = problems.into_iter().filter(|(_, _, names)| !names.is_empty()).collect();
    // The reason is that of the worst problem. The message lists all.
    let reason = problems.first()?.0;
    let texts = problems.into_iter().map(|(_, text, names)| format!("{text}: {}", listed(names)));
    Some((reason, texts.collect::<Vec<_>>().join("; ")))
}

fn leftovers(known: &Known) -> Option<Problem> {
    let unclean =
        known.pods.iter().filter_map(|pod| Some(format!("{} ({})", pod_name(pod), pod.unclean.as_ref()?)));
    let unclean: Vec<_> = unclean.collect();
    let text = || format!("leftovers of pods could not be removed: {}", listed(unclean.clone()));
    (!unclean.is_empty()).then(|| ("LeftoversNotRemoved", text()))
}

fn pod_name(pod: &PodView) -> String {
    format!("{}/{}", pod.spec.namespace, pod.spec.name)
}

fn container_name(known: &Known, container: &ContainerView) -> String {
    let pod = known.pods.iter().find(|pod| pod.id == container.pod_id);
    format!("{}/{}", pod.map_or_else(|| container.pod_id.clone(), |pod| pod_name(pod)), container.spec.name)
}

fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names}, and {more} more") }
}

#[cfg(test)]
mod tests {
    use runtime_pod::PodState;
    use runtime_spec::{ContainerSpec, PodSpec};

    use super::*;

    fn well() -> Known {
        Known {
            kvm: Ok(()),
            disk: Disk::Free(1 << 30),
            records: None,
            quarantined: Vec::new(),
            pods: Vec::new(),
            containers: Vec::new(),
            recovering: Vec::new(),
            watchdog: None,
        }
    }

    fn pod(name: &str) -> PodView {
        let spec = PodSpec { name: name.into(), namespace: "shop".into(), ..PodSpec::default() };
        PodView { id: name.into(), spec, state: PodState::NotReady, ..PodView::default() }
    }

    /// Reason and message of the only false condition.
    fn wrong(known: &Known) -> (String, String, String) {
        let mut wrong: Vec<_> = conditions(known).into_iter().filter(|condition| !condition.status).collect();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        let v1::RuntimeCondition { r#type, reason, message, .. } = wrong.remove(0);
        (r#type, reason, message)
    }

    fn assert_wrong(known: &Known, name: &str, reason: &str, words: &str) {
        let (found, why, message) = wrong(known);
        assert_eq!((found.as_str(), why.as_str()), (name, reason));
        assert!(message.contains(words), "{message}");
    }

    #[test]
    fn on_a_node_without_trouble_every_condition_holds() {
        let conditions = conditions(&well());
        assert!(conditions.iter().all(|one| one.status && one.reason.is_empty() && one.message.is_empty()));
        let names: Vec<_> = conditions.iter().map(|one| one.r#type.as_str()).collect();
        assert_eq!(names, ["KvmReady", "StateDiskReady", "RecordsReadable", "PodsRecovered", "PodsClean"]);
    }

    #[test]
    fn a_kvm_that_is_lost_is_said() {
        let known = Known { kvm: Err("/dev/kvm: No such file or directory".into()), ..well() };
        assert_wrong(&known, "KvmReady", "KvmNotUsable", "/dev/kvm: No such file");
    }

    #[test]
    fn a_disk_that_is_full_silent_or_failing_is_said() {
        let disk =
            |disk, records: Option<&str>| Known { disk, records: records.map(str::to_owned), ..well() };
        for (known, reason, words) in [
            (disk(Disk::Free(5 << 20), None), "StateDiskFull", "5 MiB are free"),
            (disk(Disk::Silent, Some("no answer within 60 s")), "StateDiskNotAnswering", "does not answer"),
            (
                disk(Disk::Free(1 << 30), Some("read-only")),
                "RecordsNotWritable",
                "takes no records: read-only",
            ),
            (disk(Disk::Free(0), Some("it is full")), "RecordsNotWritable", "it is full"),
            (disk(Disk::Failed("I/O error".into()), None), "StateDiskFailed", "I/O error"),
        ] {
            assert_wrong(&known, "StateDiskReady", reason, words);
        }
    }

    #[test]
    fn values_in_quarantine_are_named() {
        let quarantined = (0..8).map(|number| format!("pod_records/{number}")).collect();
        let known = Known { quarantined, ..well() };
        assert_wrong(&known, "RecordsReadable", "RecordsInQuarantine", "pod_records/4, and 3 more");
    }

    #[test]
    fn pods_that_recovery_could_not_take_up_are_named_the_worst_first() {
        let spec = ContainerSpec { name: "app".into(), ..ContainerSpec::default() };
        let app = ContainerView { pod_id: "web".into(), spec, ..ContainerView::default() };
        let slow = Known { recovering: vec![pod("slow").into()], ..well() };
        assert_wrong(&slow, "PodsRecovered", "RecoveryUnderWay", "still being recovered: shop/slow");
        let unknown = Known { containers: vec![app.into()], pods: vec![pod("web").into()], ..slow };
        assert_wrong(&unknown, "PodsRecovered", "ContainersUnknown", "shop/web/app; pods are still");
        let lost = Known { pods: vec![PodView { lost: true, ..pod("web") }.into()], ..unknown };
        assert_wrong(
            &lost,
            "PodsRecovered",
            "VmsNotFound",
            "at the daemon's start: shop/web; it is not known",
        );
    }

    #[test]
    fn a_pod_with_leftovers_and_a_late_watchdog_are_said() {
        let unclean = PodView { unclean: Some("a network".into()), ..pod("web") };
        let known = Known { pods: vec![unclean.into()], watchdog: Some(Ok(())), ..well() };
        assert_wrong(&known, "PodsClean", "LeftoversNotRemoved", "shop/web (a network)");
        let known = Known { watchdog: Some(Err("no answer within 10s".into())), ..well() };
        assert_wrong(&known, "WatchdogOnTime", "AnswersLate", "no answer within 10s");
    }
}
