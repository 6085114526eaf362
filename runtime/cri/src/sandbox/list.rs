//! ListPodSandbox: every pod satisfying all of the filter's conditions.

use proto_cri::v1;

use crate::convert::{pod_item, pod_matches};
use crate::serve::Cri;

pub(crate) fn list(cri: &Cri, request: v1::ListPodSandboxRequest) -> v1::ListPodSandboxResponse {
    let filter = request.filter.unwrap_or_default();
    let wanted = |pod: &_| pod_matches(&filter, pod);
    let encoded = cri.encoded.pods.items(&cri.pods.pods(), |pod| &pod.id, wanted, pod_item);
    v1::ListPodSandboxResponse { encoded, ..Default::default() }
}
