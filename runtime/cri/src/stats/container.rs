//! ContainerStats: what one container uses. One that does not run, or whose guest does not answer, is
//! told with what is known of it.

use proto_cri::v1;

use super::figures::{disk, figures};
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
    let told = usages.first().and_then(|usage| figures(&view, usage, &disk));
    let stats = told.unwrap_or_else(|| container_stats(&view, None, &disk));
    Ok(v1::ContainerStatsResponse { stats: Some(stats) })
}
