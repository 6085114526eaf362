//! GetContainerEvents: what happens to pods and containers, told as it happens.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::Streamed;

pub(crate) async fn events(
    _: &Cri,
    _: v1::GetEventsRequest,
) -> Result<Streamed<v1::ContainerEventResponse>, Failure> {
    Err(Failure::Absent("GetContainerEvents"))
}
