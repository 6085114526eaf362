//! ExecSync: a command's whole output and its exit code. A non-zero code is an answer. A timeout is an error
//! (`DeadlineExceeded`, a failed probe for the kubelet).

use std::time::Duration;

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::subject;

pub(crate) async fn exec_sync(
    pods: &Pods,
    request: v1::ExecSyncRequest,
) -> Result<v1::ExecSyncResponse, Failure> {
    if request.cmd.is_empty() {
        return Err(Failure::invalid("cmd is empty"));
    }
    // Zero is no limit (api.proto, `ExecSyncRequest.timeout`).
    let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    subject::container(pods, &request.container_id);
    let output = pods.exec_sync(&request.container_id, request.cmd, limit).await?;
    Ok(v1::ExecSyncResponse { stdout: output.stdout, stderr: output.stderr, exit_code: output.exit_code })
}
