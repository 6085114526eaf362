//! ContainerStatus: NotFound for a missing container.

use std::collections::BTreeMap;

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::container_status;
use crate::error::Failure;
use crate::subject;

pub(crate) fn status(
    pods: &Pods,
    request: v1::ContainerStatusRequest,
) -> Result<v1::ContainerStatusResponse, Failure> {
    let id = request.container_id;
    subject::container(pods, &id);
    let Some(container) = pods.container(&id) else {
        return Err(Failure::NotFound { what: "container", id });
    };
    let info = if request.verbose {
        let details = serde_json::json!({ "sandboxID": container.pod_id, "spec": container.spec });
        BTreeMap::from([("info".to_owned(), details.to_string())])
    } else {
        BTreeMap::new()
    };
    Ok(v1::ContainerStatusResponse { status: Some(container_status(&container)), info })
}
