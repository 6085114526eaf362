//! The containers and pods with usage, and the usage in CRI's form.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto_cri::v1;
use runtime_pod::{ContainerState, ContainerView, PodUsage, Pods};

use crate::convert::{container_stats, container_stats_match, silent_container_stats};
use crate::runtime::now_ns;
use crate::serve::Cri;

/// The running containers passing the filter, with their usage. A container whose guest has not answered yet
/// is listed without figures: under memory pressure a kubelet first evicts a pod that is not listed.
pub(super) async fn of_containers(cri: &Cri, filter: &v1::ContainerStatsFilter) -> Vec<v1::ContainerStats> {
    let containers: Vec<_> = running(&cri.pods).filter(|one| container_stats_match(filter, one)).collect();
    let mut pods: Vec<&str> = containers.iter().map(|one| one.pod_id.as_str()).collect();
    pods.sort_unstable();
    pods.dedup();
    let usages = by_pod(cri.pods.usages(pods).await);
    let disk = disk(cri);
    let figures = |one: &Arc<ContainerView>| {
        let known = usages.get(&one.pod_id).and_then(|usage| container_figures(one, usage, &disk));
        known.unwrap_or_else(|| silent_container_stats(one, now_ns()))
    };
    containers.iter().map(figures).collect()
}

/// The usage of pods, by pod.
pub(super) fn by_pod(usages: Vec<PodUsage>) -> HashMap<String, PodUsage> {
    usages.into_iter().map(|usage| (usage.pod_id.clone(), usage)).collect()
}

/// One container's usage, if its guest reported any.
pub(super) fn container_figures(
    view: &ContainerView,
    usage: &PodUsage,
    disk: &Path,
) -> Option<v1::ContainerStats> {
    let guest = usage.guest.as_ref()?;
    let figures = guest.containers.get(&view.id)?;
    Some(container_stats(view, Some((figures, guest.at_ns)), disk))
}

/// Running containers, oldest first.
pub(crate) fn running(pods: &Pods) -> impl Iterator<Item = Arc<ContainerView>> {
    pods.containers().into_iter().filter(|one| one.state == ContainerState::Running)
}

/// Running containers by pod, oldest first in each.
pub(super) fn running_by_pod(pods: &Pods) -> HashMap<String, Vec<Arc<ContainerView>>> {
    let mut all: HashMap<String, Vec<_>> = HashMap::new();
    for container in running(pods) {
        all.entry(container.pod_id.clone()).or_default().push(container);
    }
    all
}

/// A path on the file system of the writable layers, for stats.
pub(super) fn disk(cri: &Cri) -> PathBuf {
    cri.scratch_disk.clone()
}
