//! One listener: a unix socket standing for one of the node's sockets in one container, and a task for its
//! connections.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::MsFlags;
use proto_agent::guest_path;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::pace::Pace;
use super::stream::{self, Token};

/// Most simultaneous connections of one listener: half of the pod's, so that one container cannot use up all.
const CONNECTIONS_MAX: usize = 30;

/// Pause after a failed accept. Without free descriptors the next one fails, too.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of the file system for the listeners' files. The files hold no bytes, and each takes two inodes at
/// most.
const TMPFS: &str = "mode=0711,size=1m,nr_inodes=16k";

/// A listener. Dropping it also ends its connections.
#[derive(Debug)]
pub(super) struct SocketListener(AbortHandle);

impl SocketListener {
    /// Listens at `path`. Every user able to look up the path may connect: the node's socket has its own
    /// mode, and it applies to the host's side of the connection.
    pub(super) fn start(path: &Path, token: Token, pace: Arc<Pace>) -> io::Result<SocketListener> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        let task = tokio::spawn(serve(listener, Arc::new(token), pace));
        Ok(SocketListener(task.abort_handle()))
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the directory of a container's listeners, in a separate file system for all listeners.
pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
    let root = Path::new(guest_path::HOST_SOCKETS);
    let make = |path: &Path| DirBuilder::new().mode(0o711).create(path);
    match make(root) {
        Ok(()) => {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            let mounted = nix::mount::mount(Some("tmpfs"), root, Some("tmpfs"), flags, Some(TMPFS));
            if let Err(errno) = mounted {
                // Otherwise the next container would use a directory without its own file system.
                let _ = fs::remove_dir(root);
                return Err(errno.into());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    make(directory)
}

/// Accepts connections forever. At the limit, further ones wait in the listener's queue; the kernel bounds
/// it.
async fn serve(listener: UnixListener, token: Arc<Token>, pace: Arc<Pace>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Some((program, place)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (token, pace) = (Arc::clone(&token), Arc::clone(&pace));
        connections.spawn(async move {
            let _place = place;
            stream::carry(program, &token, &pace).await;
        });
    }
}

async fn accept(
    listener: &UnixListener,
    room: &Arc<Semaphore>,
) -> Option<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((program, _)) => Some((program, place)),
        Err(error) => {
            tracing::debug!(%error, "a connection to a socket of the node cannot be accepted");
            None
        }
    }
}
