//! The plugin's socket in the kubelet's directory, and the server on it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::Config;
use crate::devices::Usable;
use crate::identity::Identity;
use crate::service::Answers;

/// Name of the plugin's socket in the kubelet's directory.
pub(crate) const NAME: &str = "podvisor-vm.sock";

/// The pause after a listener's failure, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A served socket.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    identity: Identity,
    stopping: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Socket {
    /// Creates the socket, for root only, and serves on it. An existing socket is removed: the caller holds
    /// the claim on the directory, so no other plugin of ours serves there.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub(crate) fn serve(
        path: &Path,
        config: Arc<Config>,
        usable: watch::Receiver<Usable>,
        watchers: watch::Sender<usize>,
    ) -> io::Result<Socket> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let identity = Identity::at(path)?.ok_or(ErrorKind::NotFound)?;
        let stopping = watch::Sender::new(false);
        let answers = Answers { config, usable, watchers, stopping: stopping.subscribe() };
        let mut stopped = stopping.subscribe();
        let server = tokio::spawn(async move {
            let stop = async move {
                let _ = stopped.wait_for(|stopping| *stopping).await;
            };
            let served = answers.services().serve_with_incoming_shutdown(incoming(listener), stop).await;
            if let Err(error) = served {
                warn!(%error, "the plugin's server failed");
            }
        });
        Ok(Socket { path: path.to_owned(), identity, stopping, server })
    }

    /// Returns true if the socket is still at its path, with a running server.
    pub(crate) fn is_there(&self) -> bool {
        !self.server.is_finished()
            && matches!(Identity::at(&self.path), Ok(Some(there)) if there == self.identity)
    }

    /// Removes the socket if it is still there, ends the lists, and waits up to `drain` for calls to end.
    pub(crate) async fn stop(self, drain: Duration) {
        if self.is_there()
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(socket = %self.path.display(), %error, "the plugin's socket cannot be removed");
        }
        self.stopping.send_replace(true);
        let mut server = self.server;
        if tokio::time::timeout(drain, &mut server).await.is_err() {
            debug!("a kubelet does not end its calls; they are left open");
            server.abort();
        }
    }
}

/// The kubelet's connections. If one cannot be accepted, the failure is logged and the next one is awaited.
fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((connection, _)) => return Some((Ok(connection), listener)),
                Err(error) => {
                    warn!(%error, "the kubelet's connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}
