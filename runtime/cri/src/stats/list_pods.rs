//! ListPodSandboxStats: the usage of the pods passing the filter. Pods without a VM are left out.

use std::path::Path;
use std::sync::Arc;

use proto_cri::v1;
use runtime_pod::{ContainerView, PodUsage, PodView};

use super::figures::{by_pod, container_figures, disk, running_by_pod};
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
    let usages = by_pod(cri.pods.usages(pods.iter().map(|pod| pod.id.as_str())).await);
    let (containers, disk) = (running_by_pod(&cri.pods), disk(cri));
    let stats = pods.iter().filter_map(|pod| {
        let of_pod = containers.get(&pod.id).map_or(&[][..], Vec::as_slice);
        Some(stats(pod, usages.get(&pod.id)?, of_pod, &disk))
    });
    stats.collect()
}

/// The pod's usage with that of its running containers.
pub(super) fn stats(
    pod: &PodView,
    usage: &PodUsage,
    containers: &[Arc<ContainerView>],
    disk: &Path,
) -> v1::PodSandboxStats {
    let of_containers = containers.iter().filter_map(|one| container_figures(one, usage, disk));
    pod_stats(pod, usage, of_containers.collect())
}
