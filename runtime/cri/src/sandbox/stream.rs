//! StreamPodSandboxes: ListPodSandbox in pieces.

use proto_cri::v1;

use crate::convert::{pod_item, pod_matches};
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream(
    cri: &Cri,
    request: v1::StreamPodSandboxesRequest,
) -> Result<Streamed<v1::StreamPodSandboxesResponse>, Failure> {
    let filter = request.filter.unwrap_or_default();
    let pods = cri.pods.pods();
    let items = pods.iter().filter(|pod| pod_matches(&filter, pod)).map(|pod| pod_item(pod));
    Ok(in_pieces(items.collect(), |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
}
