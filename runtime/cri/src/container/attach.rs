//! Attach: returns a URL for the streams of a running container.

use proto_cri::v1;
use runtime_pod::AttachRequest;
use runtime_streaming::Streams;

use crate::container::exec::check;
use crate::error::Failure;
use crate::serve::Cri;
use crate::sessions::Attach;
use crate::subject;

pub(crate) async fn attach(cri: &Cri, request: v1::AttachRequest) -> Result<v1::AttachResponse, Failure> {
    let v1::AttachRequest { container_id, stdin, tty, stdout, stderr } = request;
    subject::container(&cri.pods, &container_id);
    let streams = check(Streams { stdin, stdout, stderr, tty })?;
    cri.pods.check_running(&container_id)?;
    let request = AttachRequest { stdin, stdout, stderr };
    let session = Attach { pods: cri.pods.clone(), container_id, request };
    Ok(v1::AttachResponse { url: cri.streaming.attach(streams, Box::new(session))? })
}
