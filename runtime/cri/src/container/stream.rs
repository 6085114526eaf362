//! StreamContainers: ListContainers in pieces.

use proto_cri::v1;

use crate::convert::{container_item, container_matches};
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream(
    cri: &Cri,
    request: v1::StreamContainersRequest,
) -> Result<Streamed<v1::StreamContainersResponse>, Failure> {
    let filter = request.filter.unwrap_or_default();
    let containers = cri.pods.containers();
    let items = containers
        .iter()
        .filter(|container| container_matches(&filter, container))
        .map(|container| container_item(container));
    Ok(in_pieces(items.collect(), |containers| v1::StreamContainersResponse { containers }))
}
