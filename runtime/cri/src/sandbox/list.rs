//! ListPodSandbox: every pod that passes all of the filter's conditions.

use proto_cri::v1;

use crate::convert::{pod_item, pod_matches};
use crate::serve::Cri;

pub(crate) fn list(cri: &Cri, request: v1::ListPodSandboxRequest) -> v1::ListPodSandboxResponse {
    let filter = request.filter.unwrap_or_default();
    let pods = cri.pods.pods();
    let wanted = pods.iter().filter(|pod| pod_matches(&filter, pod));
    let encoded = cri.encoded.pods.items(wanted, |pod| &pod.id, pod_item);
    cri.encoded.pods.keep(&pods, |pod| &pod.id);
    v1::ListPodSandboxResponse { encoded, ..Default::default() }
}
