//! ContainerStats: the usage of one container. A container that does not run, or whose guest does not answer, is
//! returned with its attributes alone.

use proto_cri::v1;

use super::figures::{container_figures, disk};
use crate::convert::container_stats;
use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn container(
    cri: &Cri,
    request: v1::ContainerStatsRequest,
) -> Result<v1::ContainerStatsResponse, Failure> {
    let id = request.container_id;
    let Some(view) = cri.pods.container(&id) else {
        return Err(Failure::NotFound { what: "container", id });
    };
    let usages = cri.pods.usages([view.pod_id.as_str()]).await;
    let disk = disk(cri);
    let figures = usages.first().and_then(|usage| container_figures(&view, usage, &disk));
    let stats = figures.unwrap_or_else(|| container_stats(&view, None, &disk));
    Ok(v1::ContainerStatsResponse { stats: Some(stats) })
}
