//! The node's sockets in the guest's containers. Each container and socket has a listener of the agent
//! (`listener`), in the socket's place in the container. Each connection has a stream to the host (`stream`),
//! within the host's limits (`pace`).
//!
//! ```text
//!   program ── unix ──► listener ── vsock, token first ──► VMM ──► daemon ──► the node's socket
//! ```
//!
//! If a mount's source is a socket, the listener is bound there like any file. If the source is a directory,
//! the listener is mounted over the socket's file, from inside the container's mount namespace (`attach`).
//! This happens once the node's program has created the file, and again after each re-creation: the kernel
//! drops a mount when its file is removed from the directory.
//!
//! The agent knows no path of the node. A token stands for it.

mod attach;
mod listener;
mod pace;
mod stream;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oci_spec::runtime::Spec;
use proto_agent::agent::HostSocket;
use proto_agent::{HOST_SOCKETS_MAX, guest_path};

use self::attach::{Attachment, attach_all};
use self::listener::SocketListener;
use self::pace::Pace;
use self::stream::Token;
use crate::containers::{Container, ContainerError, HostSocketError};
use crate::host_work::HostWork;
use crate::shared::ANSWER;

/// The step named in errors.
const STEP: &str = "offer a socket of the node";

/// The node's sockets in the pod's containers.
#[derive(Debug, Default)]
pub(crate) struct HostSockets {
    containers: Mutex<HashMap<String, Arc<Offered>>>,
    pace: Arc<Pace>,
}

/// The sockets of one container. Dropping the value ends the listeners.
#[derive(Debug, Default)]
struct Offered {
    _listeners: Vec<SocketListener>,
    attachments: Arc<Vec<Attachment>>,
}

impl HostSockets {
    /// Listens for the container. Mounts of the specification with a socket as their source get the listener
    /// as source.
    pub(crate) fn offer(
        &self,
        container: &Container,
        sockets: &[HostSocket],
        spec: &mut Spec,
    ) -> Result<(), ContainerError> {
        if sockets.is_empty() {
            return Ok(());
        }
        if sockets.len() > HOST_SOCKETS_MAX {
            return Err(HostSocketError::TooMany(sockets.len()).into());
        }
        let directory = directory(container.id());
        listener::make_directory(&directory).map_err(container.io(STEP))?;
        let (mut listeners, mut attachments) = (Vec::new(), Vec::new());
        for (socket, number) in sockets.iter().zip(0..) {
            let token = Token::try_from(socket.token.as_slice())
                .map_err(|_| HostSocketError::Token(socket.token.len()))?;
            let path = directory.join(format!("{number}"));
            let pace = Arc::clone(&self.pace);
            listeners.push(SocketListener::start(&path, token, pace).map_err(container.io(STEP))?);
            if socket.source.is_empty() {
                let place = (Path::new(&socket.directory), Path::new(&socket.sub_path));
                attachments.push(Attachment::new(path, place));
                continue;
            }
            for mount in spec.mounts_mut().iter_mut().flatten() {
                if mount.source().as_deref() == Some(Path::new(&socket.source)) {
                    mount.set_source(Some(path.clone()));
                }
            }
        }
        let offered = Offered { _listeners: listeners, attachments: Arc::new(attachments) };
        self.containers().insert(container.id().to_owned(), Arc::new(offered));
        Ok(())
    }

    /// Mounts the listeners over their sockets' files, if they exist and are not covered yet. `pid` is a
    /// process in the container's mount namespace.
    pub(crate) async fn attach(
        &self,
        work: &HostWork,
        container: &Container,
        pid: i32,
    ) -> Result<(), ContainerError> {
        let attachments =
            self.containers().get(container.id()).map(|offered| Arc::clone(&offered.attachments));
        let Some(attachments) = attachments.filter(|attachments| !attachments.is_empty()) else {
            return Ok(());
        };
        let attaching = work.run("mount a socket of the node", ANSWER, move || attach_all(pid, &attachments));
        attaching.await?.map_err(container.io(STEP))
    }

    /// Stops listening for the container, and removes its listeners' files.
    pub(crate) fn remove_of(&self, id: &str) -> io::Result<()> {
        // A failed container may have left files without an entry.
        self.containers().remove(id);
        match std::fs::remove_dir_all(directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn containers(&self) -> MutexGuard<'_, HashMap<String, Arc<Offered>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directory of the container's listeners.
fn directory(id: &str) -> PathBuf {
    Path::new(guest_path::HOST_SOCKETS).join(id)
}
