//! A vsock listener for the host alone. A container's processes may open vsock sockets, too, but must never
//! reach the host's services. [`crate::rpc`] and [`crate::stream_server`] therefore listen only through this
//! module.
//!
//! The guest's kernel has no loopback for vsock, so the guest's processes should never get here. The listener
//! does not rely on that.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tokio_vsock::{VMADDR_CID_ANY, VMADDR_CID_HOST, VsockAddr, VsockListener, VsockStream};

/// Pause after a failed accept. Without free descriptors the next one fails, too.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener for the host's connections to one port.
#[derive(Debug)]
pub(crate) struct HostListener {
    listener: VsockListener,
}

impl HostListener {
    /// Listens on the port.
    pub(crate) fn bind(port: u32) -> io::Result<HostListener> {
        // The host chooses the guest's own number, and may change it when a VM is restored.
        let listener = VsockListener::bind(VsockAddr::new(VMADDR_CID_ANY, port))?;
        Ok(HostListener { listener })
    }

    /// Returns the host's next connection. All others are closed unread.
    pub(crate) async fn accept(&self) -> VsockStream {
        loop {
            match self.listener.accept().await {
                Ok((connection, peer)) => {
                    if let Some(connection) = of_host(connection, peer) {
                        return connection;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Returns the host's connections as an endless stream.
    pub(crate) fn incoming(self) -> impl Stream<Item = io::Result<VsockStream>> {
        unfold(self, |listener| async { Some((Ok(listener.accept().await), listener)) })
    }
}

/// Returns the connection if it is the host's.
fn of_host<C>(connection: C, peer: VsockAddr) -> Option<C> {
    if peer.cid() == VMADDR_CID_HOST {
        return Some(connection);
    }
    refused(peer);
    None
}

/// Logs the first refused connection. The peer controls how often this happens, and each line is an exit to
/// the VMM.
fn refused(peer: VsockAddr) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        tracing::warn!(cid = peer.cid(), "refused the first connection from another peer than the host");
    }
}

#[cfg(test)]
mod tests {
    use tokio_vsock::VMADDR_CID_LOCAL;

    use super::*;

    #[test]
    fn the_host_alone_is_served() {
        assert_eq!(of_host("the host's", VsockAddr::new(VMADDR_CID_HOST, 1024)), Some("the host's"));
        // The guest itself by both of its numbers, a neighbour, the hypervisor's number, and an unassigned
        // one.
        for cid in [VMADDR_CID_LOCAL, 3, 4, 0, VMADDR_CID_ANY] {
            assert_eq!(of_host((), VsockAddr::new(cid, 1024)), None, "{cid}");
        }
    }
}
