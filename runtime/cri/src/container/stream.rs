//! StreamContainers: ListContainers in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream(
    cri: &Cri,
    request: v1::StreamContainersRequest,
) -> Result<Streamed<v1::StreamContainersResponse>, Failure> {
    let listed = super::list::list(&cri.pods, v1::ListContainersRequest { filter: request.filter });
    Ok(in_pieces(listed.containers, |containers| v1::StreamContainersResponse { containers }))
}
