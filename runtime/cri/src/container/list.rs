//! ListContainers: every container that passes all of the filter's conditions, ended ones too.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::{container_item, container_matches};

pub(crate) fn list(pods: &Pods, request: v1::ListContainersRequest) -> v1::ListContainersResponse {
    let filter = request.filter.unwrap_or_default();
    let containers = pods
        .containers()
        .iter()
        .filter(|container| container_matches(&filter, container))
        .map(|container| container_item(container))
        .collect();
    v1::ListContainersResponse { containers }
}
