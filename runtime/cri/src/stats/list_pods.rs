//! ListPodSandboxStats: the usage of the pods that pass the filter. Pods without a VM are left out.

use proto_cri::v1;
use runtime_pod::{PodUsage, PodView};

use super::figures::{container_figures, disk, running};
use crate::convert::{pod_stats, pod_stats_match};
use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn list_pods(
    cri: &Cri,
    request: v1::ListPodSandboxStatsRequest,
) -> Result<v1::ListPodSandboxStatsResponse, Failure> {
    Ok(v1::ListPodSandboxStatsResponse { stats: of_pods(cri, &request.filter.unwrap_or_default()).await })
}

pub(super) async fn of_pods(cri: &Cri, filter: &v1::PodSandboxStatsFilter) -> Vec<v1::PodSandboxStats> {
    let mut pods = cri.pods.pods();
    pods.retain(|pod| pod_stats_match(filter, pod));
    let usages = cri.pods.usages(pods.iter().map(|pod| pod.id.as_str())).await;
    let stats = pods.iter().filter_map(|pod| {
        let usage = usages.iter().find(|usage| usage.pod_id == pod.id)?;
        Some(of_pod(cri, pod, usage))
    });
    stats.collect()
}

pub(super) fn of_pod(cri: &Cri, pod: &PodView, usage: &PodUsage) -> v1::PodSandboxStats {
    let disk = disk(cri);
    let containers = running(&cri.pods).filter(|one| one.pod_id == pod.id);
    pod_stats(pod, usage, containers.filter_map(|one| container_figures(&one, usage, &disk)).collect())
}
