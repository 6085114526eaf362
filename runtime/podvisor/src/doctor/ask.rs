//! Asks a running daemon for its records, over CRI: lists, and verbose Status. None of these calls waits for
//! a pod.

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
    let runtime = &mut client.runtime;
    let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.map_err(refused)?;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await.map_err(refused)?;
    let status = runtime.status(v1::StatusRequest { verbose: true }).await.map_err(refused)?.into_inner();
    let info = status.info.get("config").map(String::as_str).unwrap_or_default();
    let info: StatusInfo = serde_json::from_str(info)
        .context("it does not say what it has on record: it is of another version than this command")?;
    let unlisted = info.pods.into_iter().map(|id| (id, PodOnRecord::default()));
    let listed = pods.into_inner().items.into_iter().map(|pod| {
        let ready = pod.state() == v1::PodSandboxState::SandboxReady;
        let v1::PodSandboxMetadata { name, namespace, .. } = pod.metadata.unwrap_or_default();
        (pod.id, PodOnRecord { name: format!("{namespace}/{name}"), ready })
    });
    Ok(OnRecord {
        // A listed pod replaces its unlisted entry, because the latter has no name.
        pods: unlisted.chain(listed).collect(),
        containers: containers.into_inner().containers.into_iter().map(|container| container.id).collect(),
        unreadable: Vec::new(),
        quarantined: info.quarantine,
    })
}
