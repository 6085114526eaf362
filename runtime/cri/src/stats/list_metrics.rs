//! ListPodSandboxMetrics: the metrics of every pod with a VM, and of its running containers.

use proto_cri::v1;

use super::figures::{by_pod, running_by_pod};
use crate::error::Failure;
use crate::metrics::{PodMetrics, PodSource};
use crate::runtime::now_ns;
use crate::serve::Cri;

/// How long the last answer of a guest is passed on, in nanoseconds.
const KEPT_FOR_NS: i64 = 60_000_000_000;

pub(crate) async fn list_metrics(
    cri: &Cri,
    _: v1::ListPodSandboxMetricsRequest,
) -> Result<v1::ListPodSandboxMetricsResponse, Failure> {
    Ok(v1::ListPodSandboxMetricsResponse { pod_metrics: in_cri(cri).await })
}

/// The metrics as CRI has them.
pub(super) async fn in_cri(cri: &Cri) -> Vec<v1::PodSandboxMetrics> {
    of_pods(cri).await.into_iter().map(PodMetrics::into_cri).collect()
}

pub(crate) async fn of_pods(cri: &Cri) -> Vec<PodMetrics> {
    let (began_ns, pods) = (now_ns(), cri.pods.pods());
    let usages = by_pod(cri.pods.usages(pods.iter().map(|pod| pod.id.as_str())).await);
    let containers = running_by_pod(&cri.pods);
    let metrics = pods.iter().filter_map(|pod| {
        let usage = usages.get(&pod.id)?;
        let guest = usage.guest.as_deref().filter(|guest| guest.at_ns >= began_ns - KEPT_FOR_NS);
        let of_pod = containers.get(&pod.id).into_iter().flatten();
        Some(PodMetrics::of(&PodSource { pod, usage, guest, began_ns }, of_pod.map(|one| &**one)))
    });
    metrics.collect()
}
