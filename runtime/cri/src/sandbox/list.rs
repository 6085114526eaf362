//! ListPodSandbox: every pod that passes all of the filter's conditions.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::{pod_item, pod_matches};

pub(crate) fn list(pods: &Pods, request: v1::ListPodSandboxRequest) -> v1::ListPodSandboxResponse {
    let filter = request.filter.unwrap_or_default();
    let items =
        pods.pods().iter().map(|pod| pod_item(pod)).filter(|item| pod_matches(&filter, item)).collect();
    v1::ListPodSandboxResponse { items }
}
