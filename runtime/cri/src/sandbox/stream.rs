//! StreamPodSandboxes: ListPodSandbox in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream(
    cri: &Cri,
    request: v1::StreamPodSandboxesRequest,
) -> Result<Streamed<v1::StreamPodSandboxesResponse>, Failure> {
    let listed = super::list::list(&cri.pods, v1::ListPodSandboxRequest { filter: request.filter });
    Ok(in_pieces(listed.items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
}
