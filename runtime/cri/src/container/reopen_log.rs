//! ReopenContainerLog: answers when the new file exists and nothing more is written to the old one.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::subject;

pub(crate) async fn reopen_log(
    cri: &Cri,
    request: v1::ReopenContainerLogRequest,
) -> Result<v1::ReopenContainerLogResponse, Failure> {
    subject::container(&cri.pods, &request.container_id);
    cri.pods.reopen_log(&request.container_id).await?;
    Ok(v1::ReopenContainerLogResponse {})
}
