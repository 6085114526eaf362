//! ListContainers: every container satisfying all of the filter's conditions, including ended ones.

use proto_cri::v1;

use crate::convert::{container_item, container_matches};
use crate::serve::Cri;

pub(crate) fn list(cri: &Cri, request: v1::ListContainersRequest) -> v1::ListContainersResponse {
    let filter = request.filter.unwrap_or_default();
    let wanted = |container: &_| container_matches(&filter, container);
    let encoded = cri.encoded.containers.items(
        &cri.pods.containers(),
        |container| &container.id,
        wanted,
        container_item,
    );
    v1::ListContainersResponse { encoded, ..Default::default() }
}
