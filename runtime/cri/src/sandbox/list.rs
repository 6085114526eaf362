//! ListPodSandbox: every pod that passes all of the filter's conditions.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::{pod_item, pod_matches};

pub(crate) fn list(pods: &Pods, request: v1::ListPodSandboxRequest) -> v1::ListPodSandboxResponse {
    let filter = request.filter.unwrap_or_default();
    let items = pods.pods().iter().filter(|pod| pod_matches(&filter, pod)).map(|pod| pod_item(pod)).collect();
    v1::ListPodSandboxResponse { items }
}
