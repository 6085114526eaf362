//! Status: whether pods can run, and on which handlers. NetworkReady is read from the CNI directory each
//! time, so that a configuration added there takes effect at once. The daemon's other self-checks are in
//! further conditions (`conditions.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use proto_cri::v1;
use runtime_pod::{Part, PodState, PodView, Pods};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::conditions::{Disk, Known, condition, conditions};
use super::features;
use super::watchdog::Watchdog;
use crate::blocking::{NODE, STATE_LOOK};
use crate::error::Failure;

/// Time limit for reading the free space of the state's disk. A kubelet asks every five seconds.
const DISK_WITHIN: Duration = Duration::from_secs(1);

/// Key of the current configuration in verbose Status' information.
pub const CONFIGURATION: &str = "configuration";

/// The node's part of Status, beyond pods and images.
pub struct Node {
    /// Current configuration.
    pub configuration: watch::Receiver<ConfigurationView>,
    /// Network of the node.
    pub network: Box<dyn NodeNetwork>,
    /// Driver of the pods' cgroups.
    pub cgroup_driver: CgroupDriver,
    /// Path of images and pods' disks.
    pub state_dir: PathBuf,
    /// The device for creating VMs.
    pub kvm: PathBuf,
    /// Outcome of the daemon's own health check.
    pub watchdog: Arc<Watchdog>,
}

/// The current configuration, as far as Status and metrics report it. The daemon publishes a new view at each
/// change.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationView {
    /// Runtime handlers by name. The empty name means the default one.
    pub handlers: Vec<String>,
    /// Keys with their values and origins, for `podvisor config`.
    pub in_force: serde_json::Value,
    /// True if the last read configuration was refused.
    pub is_refused: bool,
    /// Number of changed keys waiting for a restart.
    pub waiting: usize,
    /// Walls around VMMs by name, each with why the node lacks it.
    pub walls: Vec<(&'static str, Option<String>)>,
}

/// The node's network, as far as CRI needs it. Errors are for people.
pub trait NodeNetwork: Send + Sync {
    /// Checks that a pod could get a network now. Called on each Status, with a time limit.
    ///
    /// # Errors
    /// The reason why a pod could not get one, for people.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Takes the ranges of pod addresses, primary first. May wait for files.
    ///
    /// # Errors
    /// The reason why they are unusable, for people.
    fn set_pod_ranges(&self, ranges: &[String]) -> Result<(), String>;

    /// The last ranges set.
    fn pod_ranges(&self) -> Vec<String>;
}

/// Driver of the pods' cgroups. It decides the form of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd, as slices.
    Systemd,
    /// The kubelet itself, as directories.
    Cgroupfs,
}

impl fmt::Display for CgroupDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CgroupDriver::Systemd => "systemd",
            CgroupDriver::Cgroupfs => "cgroupfs",
        })
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("state_dir", &self.state_dir).finish_non_exhaustive()
    }
}

/// Runs off the async threads: the network's files may be on a hanging disk.
pub(crate) async fn status(
    node: Arc<Node>,
    pods: &Pods,
    request: v1::StatusRequest,
) -> Result<v1::StatusResponse, Failure> {
    let of_pods = if request.verbose { OfPods::ask(pods).await } else { OfPods::default() };
    let (disk, network) = futures::join!(disk(pods), node.network.ready());
    let pods = pods.clone();
    // Called here and not in the pool, because it may spawn a task.
    let records = pods.records_trouble();
    let known = move |node: &Node| known(node, &pods, disk, records);
    Ok(NODE.run(move || answer(&node, network, &known(&node), &of_pods, request)).await?)
}

/// The part of a verbose answer about pods.
#[derive(Debug, Default)]
struct OfPods {
    /// Ids of all pods, including starting ones: `podvisor doctor` compares them with the node's resources.
    ids: Vec<String>,
    /// Ids of the pods being started: `podvisor rm --all-vms` waits for them.
    starting: Vec<String>,
    /// Sizes of the VMs of ready pods, by the pods' ids, for `podvisor ps`.
    vms: serde_json::Map<String, Value>,
    /// Why something of a pod could not be removed, by the pods' ids, for `podvisor doctor`.
    unclean: serde_json::Map<String, Value>,
    /// Quarantined values of the records, also for `podvisor doctor`.
    quarantined: Vec<String>,
    /// Comparison of pods' VMs with the installed versions, for `podvisor check`. Null if the disk does not
    /// answer.
    versions: Value,
}

impl OfPods {
    async fn ask(pods: &Pods) -> OfPods {
        let versions = match pods.installed().await {
            Ok(installed) => {
                let running = pods.pods();
                let outdated = running.iter().map(|pod| (&**pod, installed.outdated(pod)));
                versions(installed.restart_needed, outdated)
            }
            Err(_) => Value::Null,
        };
        let ready = pods.pods().into_iter().filter(|pod| pod.state == PodState::Ready);
        let vms = ready.map(|pod| {
            let mut vm = json!(pod.ledger.size);
            vm["full_disks"] = pod.full_disks.into();
            (pod.id.clone(), vm)
        });
        let vms = vms.collect();
        let unclean = pods.pods().into_iter().filter_map(|pod| {
            let why = pod.unclean.clone()?;
            Some((pod.id.clone(), Value::String(why)))
        });
        let unclean = unclean.collect();
        let (ids, starting) = (pods.ids(), pods.starting());
        OfPods { ids, starting, vms, unclean, quarantined: pods.quarantined(), versions }
    }
}

/// Counts the VMs, and names the pods with outdated ones.
fn versions<'a>(restart_needed: bool, pods: impl Iterator<Item = (&'a PodView, Vec<Part>)>) -> Value {
    let (mut vms, mut outdated) = (0, Vec::new());
    for (pod, parts) in pods {
        vms += u32::from(pod.vmm_pid.is_some());
        if !parts.is_empty() {
            let parts: Vec<_> = parts.into_iter().map(Part::name).collect();
            let (namespace, name) = (&pod.spec.namespace, &pod.spec.name);
            outdated.push(json!({ "id": pod.id, "namespace": namespace, "name": name, "parts": parts }));
        }
    }
    json!({ "restart_needed": restart_needed, "vms": vms, "outdated": outdated })
}

/// Reads the state's disk, on one thread: a hanging read holds up later ones.
async fn disk(pods: &Pods) -> Disk {
    let pods = pods.clone();
    match tokio::time::timeout(DISK_WITHIN, STATE_LOOK.run(move || pods.state_bytes_free())).await {
        Ok(Ok(Ok(bytes))) => Disk::Free(bytes),
        Ok(Ok(Err(error))) => Disk::Failed(error.to_string()),
        Ok(Err(error)) => Disk::Failed(error.to_string()),
        Err(_) => Disk::Silent,
    }
}

fn known(node: &Node, pods: &Pods, disk: Disk, records: Option<String>) -> Known {
    Known {
        kvm: kvm(&node.kvm),
        disk,
        records,
        quarantined: pods.quarantined(),
        pods: pods.pods(),
        containers: pods.containers(),
        recovering: pods.recovering(),
        watchdog: node.watchdog.last(),
    }
}

/// Checks that KVM exists and can be opened. `podvisor check` finds out whether it runs a guest.
fn kvm(path: &Path) -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(path);
    match opened.and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.file_type().is_char_device() => Ok(()),
        Ok(_) => Err(format!("{} is no device", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn answer(
    node: &Node,
    network: Result<(), String>,
    known: &Known,
    of_pods: &OfPods,
    request: v1::StatusRequest,
) -> v1::StatusResponse {
    let network = network.err().map(|why| ("NetworkPluginNotReady", why));
    let configuration = node.configuration.borrow().clone();
    let info = if request.verbose {
        let state = info(node, &configuration, of_pods);
        BTreeMap::from([
            ("config".to_owned(), state.to_string()),
            (CONFIGURATION.to_owned(), configuration.in_force.to_string()),
        ])
    } else {
        BTreeMap::new()
    };
    // The first two are for the kubelet. RuntimeReady holds even if others do not: running pods continue, and
    // a failing start reports its own reason.
    let mut all = vec![condition("RuntimeReady", None), condition("NetworkReady", network)];
    all.extend(conditions(known));
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions: all }),
        info,
        runtime_handlers: configuration.handlers.iter().map(|name| runtime_handler(name)).collect(),
        features: Some(features::of_runtime()),
    }
}

fn info(node: &Node, configuration: &ConfigurationView, of_pods: &OfPods) -> Value {
    json!({
        "handlers": configuration.handlers,
        "walls_missing": walls_missing(configuration),
        "cgroup_driver": node.cgroup_driver.to_string(),
        "pod_ranges": node.network.pod_ranges(),
        // containerd's name: clients look there for the file system of containers' roots.
        "stateDir": node.state_dir,
        "pods": of_pods.ids,
        "starting": of_pods.starting,
        "quarantine": of_pods.quarantined,
        "unclean": of_pods.unclean,
        "vms": of_pods.vms,
        "versions": of_pods.versions,
    })
}

/// The walls that the node lacks, with the reasons.
fn walls_missing(configuration: &ConfigurationView) -> Value {
    let missing =
        configuration.walls.iter().filter_map(|(name, why)| Some(((*name).to_owned(), json!(why.as_ref()?))));
    Value::Object(missing.collect())
}

fn runtime_handler(name: &str) -> v1::RuntimeHandler {
    v1::RuntimeHandler { name: name.to_owned(), features: Some(features::of_handler()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoNetwork;

    fn no_network() -> Result<(), String> {
        Err("no configuration in /etc/cni/net.d".to_owned())
    }

    impl NodeNetwork for NoNetwork {
        fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(async { no_network() })
        }
        fn set_pod_ranges(&self, _: &[String]) -> Result<(), String> {
            Ok(())
        }
        fn pod_ranges(&self) -> Vec<String> {
            vec!["10.1.0.0/24".to_owned()]
        }
    }

    fn node() -> (Node, watch::Sender<ConfigurationView>) {
        let (sender, configuration) = watch::channel(ConfigurationView {
            handlers: vec![String::new()],
            in_force: json!({"keys": 1}),
            walls: vec![("seccomp", None), ("landlock", Some("not there".into()))],
            ..ConfigurationView::default()
        });
        let node = Node {
            configuration,
            network: Box::new(NoNetwork),
            cgroup_driver: CgroupDriver::Cgroupfs,
            state_dir: "/var/lib/podvisor".into(),
            kvm: "/no/such/kvm".into(),
            watchdog: Arc::default(),
        };
        (node, sender)
    }

    fn known(node: &Node) -> Known {
        Known {
            kvm: kvm(&node.kvm),
            disk: Disk::Silent,
            records: Some("the disk is full".into()),
            quarantined: vec!["pod_records/x".into()],
            pods: Vec::new(),
            containers: Vec::new(),
            recovering: Vec::new(),
            watchdog: node.watchdog.last(),
        }
    }

    #[test]
    fn a_network_that_is_not_ready_is_reported_with_its_reason() {
        let (node, sender) = node();
        sender.send_modify(|configuration| configuration.handlers.push("kvm".into()));
        let vms = serde_json::Map::from_iter([("ab".to_owned(), json!({ "memory_bytes": 1 }))]);
        let of_pods = OfPods { ids: vec!["ab".to_owned()], vms, ..OfPods::default() };
        let answer =
            answer(&node, no_network(), &known(&node), &of_pods, v1::StatusRequest { verbose: true });
        let conditions = answer.status.unwrap().conditions;
        assert!(conditions[0].status && conditions[0].r#type == "RuntimeReady");
        assert!(!conditions[1].status && conditions[1].message.contains("/etc/cni/net.d"));
        assert_eq!(answer.runtime_handlers.len(), 2);
        let info: Value = serde_json::from_str(&answer.info["config"]).unwrap();
        assert_eq!(
            (&info["cgroup_driver"], &info["pod_ranges"][0], &info["stateDir"]),
            (&"cgroupfs".into(), &"10.1.0.0/24".into(), &"/var/lib/podvisor".into())
        );
        assert_eq!(answer.info[CONFIGURATION], r#"{"keys":1}"#);
        assert_eq!((&info["pods"][0], &info["quarantine"]), (&"ab".into(), &json!([])));
        assert_eq!(info["vms"]["ab"]["memory_bytes"], 1);
        assert_eq!(info["walls_missing"], json!({ "landlock": "not there" }));
    }

    #[test]
    fn pods_with_outdated_parts_are_named_and_the_others_counted() {
        let pod = |id: &str, vmm_pid| PodView { id: id.into(), vmm_pid, ..PodView::default() };
        let (old, new, stopped) = (pod("a", Some(1)), pod("b", Some(2)), pod("c", None));
        let pods = [(&old, vec![Part::Vmm, Part::Kernel]), (&new, Vec::new()), (&stopped, Vec::new())];
        let said = versions(true, pods.into_iter());
        assert_eq!((&said["restart_needed"], &said["vms"]), (&true.into(), &2.into()));
        assert_eq!(
            said["outdated"],
            json!([{ "id": "a", "namespace": "", "name": "", "parts": ["vmm", "kernel"] }])
        );
    }

    #[test]
    fn no_trouble_of_the_daemon_takes_the_node_out_of_service() {
        let (node, _sender) = node();
        node.watchdog.report(Err("no answer within 10s".into()));
        let answer =
            answer(&node, no_network(), &known(&node), &OfPods::default(), v1::StatusRequest::default());
        let conditions = answer.status.unwrap().conditions;
        let wrong: Vec<_> =
            conditions.iter().filter(|one| !one.status).map(|one| one.r#type.as_str()).collect();
        let expected = ["NetworkReady", "KvmReady", "StateDiskReady", "RecordsReadable", "WatchdogOnTime"];
        assert_eq!(wrong, expected);
        assert!(conditions.iter().all(|one| one.status == one.reason.is_empty()));
        assert_eq!(conditions.iter().filter(|one| one.r#type == "RuntimeReady" && one.status).count(), 1);
    }

    #[test]
    fn a_kvm_that_is_not_there_or_another_file_is_named() {
        assert!(kvm(Path::new("/no/such/kvm")).unwrap_err().starts_with("/no/such/kvm: No such file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(kvm(file.path()).unwrap_err().ends_with("is no device"));
        assert_eq!(kvm(Path::new("/dev/null")), Ok(()));
    }
}
