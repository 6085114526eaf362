//! The pods of a private daemon: they go with its command. What an earlier command left behind is removed
//! first. Leftovers that resist are no reason to refuse this command: they stay on record for the next one.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use runtime_pod::Pods;

/// Timeout for removing all pods. An unkillable VM must not hold the command for ever.
pub(crate) const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Removes the pods of an earlier command with a killed daemon. Returns the ids of those that stay.
pub(super) async fn remove_earlier(pods: &Pods) -> HashSet<String> {
    if let Err(error) = remove_all(pods).await {
        let error = format!("{error:#}");
        tracing::warn!(error, "pods of an earlier command stay; `podvisor doctor --repair` removes them");
    }
    pods.ids().into_iter().collect()
}

/// Removes every pod. Pods of an `earlier` command may stay.
pub(super) async fn remove_own(pods: &Pods, earlier: &HashSet<String>) -> anyhow::Result<()> {
    match remove_all(pods).await {
        Err(_) if pods.ids().iter().all(|id| earlier.contains(id)) => Ok(()),
        removed => removed,
    }
}

async fn remove_all(pods: &Pods) -> anyhow::Result<()> {
    let removed = tokio::time::timeout(REMOVE_TIMEOUT, pods.remove_all()).await;
    removed
        .with_context(|| format!("removing the pods took more than {REMOVE_TIMEOUT:?}"))?
        .context("removing the pods")
}
