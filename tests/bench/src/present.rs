//! Keeps pods running while others start. Measures nothing.

use anyhow::Context;
use futures::future::try_join_all;
use tests_e2e::{Host, spec};

/// Calls at once while pods are made, recovered and removed.
pub(crate) const AT_ONCE: usize = 4;

/// Makes some pods of a handler (of the default one if it has no name), so many at a time.
pub(crate) async fn make(host: &Host, handler: &str, pods: usize, at_once: usize) -> anyhow::Result<()> {
    for first in (0..pods).step_by(at_once) {
        let batch = (first..pods.min(first + at_once)).map(|number| {
            let (mut client, config) = (host.client(), spec::pod(&format!("present{number}"), host.dir()));
            async move { client.run_pod_on(&config, handler).await }
        });
        try_join_all(batch).await.context("making the pods that stay")?;
    }
    Ok(())
}
