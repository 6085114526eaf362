//! Connections to the kubelet's sockets.

use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Connects to a socket. Fails at once without a listener. The caller sets the deadline.
pub(crate) async fn connect(socket: &Path) -> Result<Channel, Error> {
    let path: PathBuf = socket.to_owned();
    // HTTP/2 needs the URI, but the connector ignores it and uses the path.
    let dial = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(dial).await
}

/// Returns an error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Layers of the transport repeat each other's text.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
