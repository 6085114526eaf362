//! Asks a running daemon for its configuration in force, over CRI.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_cri::CONFIGURATION;
use tokio::net::UnixStream;

use super::view::ConfigView;
use crate::client::{self, refused};

/// Timeout for the daemon. It answers in milliseconds, and a hanging one must not hang a command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The configuration of the daemon on this socket; `None` if no daemon serves there.
///
/// # Errors
/// The socket cannot be used, or the daemon does not answer in time, or the answer has no configuration.
pub(crate) async fn in_force(socket: &Path) -> anyhow::Result<Option<ConfigView>> {
    match tokio::time::timeout(ANSWERS_WITHIN, ask(socket)).await {
        Ok(outcome) => outcome.with_context(|| format!("asking the daemon on {}", socket.display())),
        Err(_) => bail!("the daemon on {} did not answer within {ANSWERS_WITHIN:?}", socket.display()),
    }
}

async fn ask(socket: &Path) -> anyhow::Result<Option<ConfigView>> {
    match UnixStream::connect(socket).await {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        // Without permission for root's socket there may still be a daemon.
        Err(error) => return Err(error.into()),
    }
    let mut client = client::connect(socket).await?;
    let request = v1::StatusRequest { verbose: true };
    let mut status = client.runtime.status(request).await.map_err(refused)?.into_inner();
    let text = status.info.remove(CONFIGURATION).unwrap_or_default();
    let view = serde_json::from_str(&text)
        .context("it does not say what it has in force: it is of another version than this command")?;
    Ok(Some(view))
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn nobody_on_the_socket_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(in_force(&dir.path().join("absent.sock")).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_daemon_that_hangs_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("podvisor.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        tokio::time::pause();
        let error = in_force(&socket).await.unwrap_err().to_string();
        assert!(error.contains("podvisor.sock did not answer within"), "{error}");
    }
}
