//! Asks a running daemon for its records, over CRI: lists, and verbose Status. None of these calls waits for
//! a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_pod::doctor::{OnRecord, PodOnRecord};
use serde::Deserialize;

use crate::client::{self, Client, refused};

/// Timeout for all answers together. A daemon answers in milliseconds, and a hanging one must not hang this
/// command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The interval between two attempts to connect to a daemon while it starts or ends.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// The part of Status' information used here.
#[derive(Debug, Deserialize)]
struct StatusInfo {
    /// Ids of all pods on record. It includes pods starting now, before any list has them.
    pods: Vec<String>,
    quarantine: Vec<String>,
    /// Why something of a pod could not be removed, by the pod's id. Daemons of earlier builds do not say it.
    #[serde(default)]
    unclean: BTreeMap<String, String>,
}

/// Asks the daemon on `socket`.
pub(super) async fn on_record(socket: &Path) -> anyhow::Result<OnRecord> {
    let asking = async { ask(connect(socket).await).await };
    match tokio::time::timeout(ANSWERS_WITHIN, asking).await {
        Ok(outcome) => outcome,
        Err(_) => bail!(
            "it has its state locked, and did not answer within {} s: it starts, ends or hangs",
            ANSWERS_WITHIN.as_secs()
        ),
    }
}

async fn connect(socket: &Path) -> Client {
    loop {
        if let Ok(client) = client::connect(socket).await {
            return client;
        }
        tokio::time::sleep(CONNECT_INTERVAL).await;
    }
}

async fn ask(mut client: Client) -> anyhow::Result<OnRecord> {
    // The daemon's own pods are asked for before and after: otherwise one made or removed meanwhile would
    // look like a pod of the runtime behind the daemon.
    let before = info(&mut client).await?;
    let runtime = &mut client.runtime;
    let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.map_err(refused)?;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await.map_err(refused)?;
    let after = info(&mut client).await?;
    let (pods, containers) = (pods.into_inner().items, containers.into_inner().containers);
    Ok(merged(pods, containers, before, after))
}

/// Asks for the daemon's own part of Status.
async fn info(client: &mut Client) -> anyhow::Result<StatusInfo> {
    let request = v1::StatusRequest { verbose: true };
    let status = client.runtime.status(request).await.map_err(refused)?.into_inner();
    let info = status.info.get("config").map(String::as_str).unwrap_or_default();
    serde_json::from_str(info)
        .context("it does not say what it has on record: it is of another version than this command")
}

/// The daemon's own pods and containers among all listed ones. The lists have those of the runtime behind the
/// daemon, too, and no VMM runs for them. `before` and `after` are the daemon's answers around the lists.
fn merged(
    pods: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
    before: StatusInfo,
    mut after: StatusInfo,
) -> OnRecord {
    let own: BTreeSet<String> = before.pods.into_iter().chain(after.pods.iter().cloned()).collect();
    let unlisted = after.pods.into_iter().map(|id| (id, PodOnRecord::default()));
    let listed = pods.into_iter().filter(|pod| own.contains(&pod.id)).map(|pod| {
        let ready = pod.state() == v1::PodSandboxState::SandboxReady;
        let unclean = after.unclean.remove(&pod.id);
        let v1::PodSandboxMetadata { name, namespace, .. } = pod.metadata.unwrap_or_default();
        (pod.id, PodOnRecord { name: format!("{namespace}/{name}"), ready, unclean })
    });
    let containers = containers.into_iter().filter(|container| own.contains(&container.pod_sandbox_id));
    OnRecord {
        // A listed pod replaces its unlisted entry, because the latter has no name.
        pods: unlisted.chain(listed).collect(),
        containers: containers.map(|container| container.id).collect(),
        unreadable: Vec::new(),
        quarantined: after.quarantine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::tests::{container, pod};

    #[test]
    fn pods_of_the_runtime_behind_the_daemon_are_not_on_its_record() {
        let info = |pods: &[&str], quarantine: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let unclean = [("vm".to_owned(), "a disk".to_owned())].into();
            StatusInfo { pods: owned(pods), quarantine: owned(quarantine), unclean }
        };
        let running = v1::ContainerState::ContainerRunning;
        let record = merged(
            vec![
                pod("vm", "shop", "cart", true),
                pod("removed", "a", "b", true),
                pod("runc", "c", "d", true),
            ],
            vec![container("c1", "vm", "main", running), container("c2", "runc", "proxy", running)],
            info(&["vm", "removed"], &[]),
            info(&["vm", "starting"], &["x"]),
        );
        let named = |name: &str| PodOnRecord { name: name.into(), ready: true, unclean: None };
        let vm = PodOnRecord { unclean: Some("a disk".into()), ..named("shop/cart") };
        let expected = [("removed", named("a/b")), ("starting", PodOnRecord::default()), ("vm", vm)];
        let expected = expected.into_iter();
        assert_eq!(record.pods, expected.map(|(id, pod)| (id.to_owned(), pod)).collect());
        assert_eq!(record.containers, ["c1".to_owned()].into());
        assert_eq!(record.quarantined, ["x"]);
    }
}
