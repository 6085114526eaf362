//! The daemon's side: starts a connector, and asks it for connections.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime_blocking::in_place;
use runtime_fail_points::{Point, pass_async};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::command_line::{ARGUMENT, ConnectorUser};
use crate::message::{self, Answer};
use crate::reactor;

/// How long a connector may take to connect. This is longer than its own wait for a server with a full queue.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A connector to start.
#[derive(Debug)]
pub struct ConnectorSpec<'a> {
    /// The program. It calls [`crate::run`] when its first argument is [`crate::ARGUMENT`].
    pub program: &'a Path,
    /// Directories of the cgroups to enter, one in each hierarchy: each has a `cgroup.procs`.
    pub cgroups: &'a [PathBuf],
    /// The user to become.
    pub user: &'a ConnectorUser,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The node's socket took none.
    #[error("connecting to it failed")]
    Refused(#[source] io::Error),
    /// The connector has ended; another one may do better.
    #[error("the container's connector has ended")]
    Lost,
    /// The connector does not answer.
    #[error("the container's connector did not answer within {} s", CONNECT_WITHIN.as_secs())]
    Silent,
}

/// Connections waiting for an answer; `None` once the connector has ended.
type Pending = Mutex<Option<HashMap<u64, oneshot::Sender<i32>>>>;

/// A connector. Dropping it ends the process and its connections.
#[derive(Debug)]
pub struct Connector {
    shared: Arc<Shared>,
    receiver: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    pending: Pending,
    next_id: AtomicU64,
}

impl Connector {
    /// Starts a connector in its cgroups.
    ///
    /// # Errors
    /// The process cannot be started, or a cgroup not be entered.
    pub async fn start(spec: ConnectorSpec<'_>) -> io::Result<Connector> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        pass_async(Point::ConnectorSpawn).await?;
        let mut command = Command::new(spec.program);
        command
            .arg(ARGUMENT)
            .arg(spec.user.to_string())
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let mut child = in_place(|| command.spawn())?;
        let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        for cgroup in spec.cgroups {
            // The process has not done any work yet. It is killed if this fails.
            let path = cgroup.join("cgroup.procs");
            let mut file = File::options().write(true).open(path)?;
            file.write_all(pid.to_string().as_bytes())?;
        }
        let connector = Connector::over(ours, async move { drop(child.wait().await) })?;
        tracing::debug!(pid, "a connector was started");
        Ok(connector)
    }

    /// A connector at the other end of the socket. It has ended once `ended` resolves.
    fn over(socket: OwnedFd, ended: impl Future<Output = ()> + Send + 'static) -> io::Result<Connector> {
        let shared = Arc::new(Shared {
            socket: reactor::watch(socket)?,
            pending: Mutex::new(Some(HashMap::new())),
            next_id: AtomicU64::new(0),
        });
        let receiving = Arc::clone(&shared);
        let receiver = tokio::spawn(async move {
            let answers = async {
                receiving.receive().await;
                // Waiting callers learn of the connector's end.
                receiving.pending().take();
            };
            // This task owns the child: it kills it when aborted, and reaps it at its end.
            tokio::join!(answers, ended);
        });
        Ok(Connector { shared, receiver: receiver.abort_handle() })
    }

    /// Whether the process has ended.
    pub fn is_lost(&self) -> bool {
        self.shared.pending().is_none()
    }

    /// Has the connector connect to the socket at `path` (without symbolic links) and copy bytes between it
    /// and `stream`. Returns once the connection exists.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn connect(&self, path: &Path, stream: OwnedFd) -> Result<(), ConnectError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match self.shared.pending().as_mut() {
            Some(pending) => pending.insert(id, sender),
            None => return Err(ConnectError::Lost),
        };
        let _waiting = Waiting { shared: &self.shared, id };
        let asking = async {
            if self.shared.ask(id, path, stream).await.is_err() {
                // Later callers fail at once.
                self.shared.pending().take();
                return Err(ConnectError::Lost);
            }
            match answer.await {
                Ok(0) => Ok(()),
                Ok(errno) => Err(ConnectError::Refused(io::Error::from_raw_os_error(errno))),
                Err(_) => Err(ConnectError::Lost),
            }
        };
        tokio::time::timeout(CONNECT_WITHIN, asking).await.unwrap_or(Err(ConnectError::Silent))
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl Shared {
    async fn ask(&self, id: u64, path: &Path, stream: OwnedFd) -> io::Result<()> {
        loop {
            let mut guard = self.socket.ready(Interest::WRITABLE).await?;
            match message::ask(self.socket.get_ref(), id, path, stream.as_fd()) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                asked => return Ok(asked?),
            }
        }
    }

    /// Receives answers until the connector has ended.
    async fn receive(&self) {
        loop {
            let Ok(mut guard) = self.socket.ready(Interest::READABLE).await else { return };
            match message::next_answer(self.socket.get_ref()) {
                Ok(Some(Answer { id, errno })) => {
                    let waiting = self.pending().as_mut().and_then(|pending| pending.remove(&id));
                    // The caller may have given up.
                    let _ = waiting.map(|waiting| waiting.send(errno));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<i32>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending connection, removed from the map when its caller is done or dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.shared.pending().as_mut() {
            pending.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use crate::process::answer_all;

    /// A connector in this process, and the means to end it.
    fn connector() -> (Connector, tokio::task::JoinHandle<()>) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let socket = Arc::new(reactor::watch(theirs).unwrap());
        let process = tokio::spawn(async move { answer_all(socket).await.unwrap() });
        (Connector::over(ours, std::future::ready(())).unwrap(), process)
    }

    fn pair() -> (UnixStream, OwnedFd) {
        let (program, container) = UnixStream::pair().unwrap();
        (program, container.into_std().unwrap().into())
    }

    #[tokio::test]
    async fn bytes_go_both_ways_over_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (connector, process) = connector();
        let (mut program, container) = pair();
        connector.connect(&path, container).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        program.write_all(b"question").await.unwrap();
        let mut question = [0; 8];
        server.read_exact(&mut question).await.unwrap();
        assert_eq!(&question, b"question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        drop(connector);
        process.await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_reported_and_the_containers_end_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (connector, process) = connector();
        let (mut program, container) = pair();
        let refused = connector.connect(&dir.path().canonicalize().unwrap().join("none"), container).await;
        assert!(
            matches!(refused, Err(ConnectError::Refused(error)) if error.kind() == io::ErrorKind::NotFound)
        );
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
        process.abort();
        let _ = process.await;
        let (_program, container) = pair();
        let lost = connector.connect(Path::new("/none"), container).await;
        assert!(matches!(lost, Err(ConnectError::Lost)), "{lost:?}");
        assert!(connector.is_lost());
    }
}
