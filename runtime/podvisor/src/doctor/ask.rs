//! Asks a running daemon what it has on record, over CRI: lists, and Status with what is said to people. None of these
//! calls waits for a pod.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_pod::doctor::{OnRecord, PodOnRecord};
use serde::Deserialize;

use crate::client::{self, Client, refused};

/// How long a daemon may take to answer everything: it answers in milliseconds, and one that hangs must not hang this
/// command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The interval between two attempts to connect to a daemon that starts or ends.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// The part of Status' information that is looked at.
#[derive(Debug, Deserialize)]
struct StatusInfo {
    /// Ids of all pods on record, those included that start now and are in no list yet.
    pods: Vec<String>,
    quarantine: Vec<String>,
}

/// Asks the daemon that serves on `socket`.
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
        // A listed pod replaces the same one without its name.
        pods: unlisted.chain(listed).collect(),
        containers: containers.into_inner().containers.into_iter().map(|container| container.id).collect(),
        unreadable: Vec::new(),
        quarantined: info.quarantine,
    })
}
