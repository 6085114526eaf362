//! ListPodSandboxMetrics: the metrics of every pod with a responsive guest, and of its running containers.

use proto_cri::v1;

use super::figures::{by_pod, running_by_pod};
use crate::error::Failure;
use crate::metrics;
use crate::runtime::now_ns;
use crate::serve::Cri;

pub(crate) async fn list_metrics(
    cri: &Cri,
    _: v1::ListPodSandboxMetricsRequest,
) -> Result<v1::ListPodSandboxMetricsResponse, Failure> {
    Ok(v1::ListPodSandboxMetricsResponse { pod_metrics: of_pods(cri).await })
}

pub(crate) async fn of_pods(cri: &Cri) -> Vec<v1::PodSandboxMetrics> {
    let (began_ns, pods) = (now_ns(), cri.pods.pods());
    let usages = by_pod(cri.pods.usages(pods.iter().map(|pod| pod.id.as_str())).await);
    let containers = running_by_pod(&cri.pods);
    let metrics = pods.iter().filter_map(|pod| {
        let usage = usages.get(&pod.id)?;
        let guest = usage.guest.as_deref()?;
        let of_pod = containers.get(&pod.id).into_iter().flatten();
        Some(metrics::of_pod(&metrics::PodSource { pod, usage, guest, began_ns }, of_pod.map(|one| &**one)))
    });
    metrics.collect()
}
