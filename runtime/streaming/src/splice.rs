//! Output moved by the kernel from a pipe to a client's socket, without a copy in this process. The server
//! uses it only if the bytes need no processing, so never with TLS. `runtime/pieces` explains the source of
//! the pipes.

use std::io;
use std::os::fd::AsFd;

use runtime_pieces::Piped;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::idle::LastActivity;

/// A second descriptor of a client's connection, to splice into. A caller must flush all output of the first
/// descriptor before it sends by this one.
#[derive(Debug)]
pub(crate) struct SpliceSender {
    socket: TcpStream,
    activity: Option<LastActivity>,
}

impl SpliceSender {
    pub(crate) fn of(connection: &TcpStream) -> io::Result<SpliceSender> {
        let socket = std::net::TcpStream::from(connection.as_fd().try_clone_to_owned()?);
        Ok(SpliceSender { socket: TcpStream::from_std(socket)?, activity: None })
    }

    /// Records every piece sent as activity of the connection.
    pub(crate) fn with_activity(self, activity: LastActivity) -> SpliceSender {
        SpliceSender { activity: Some(activity), ..self }
    }

    /// Sends `before` and then the piece, in one packet if both fit.
    pub(crate) async fn send(&self, mut before: &[u8], piped: Piped) -> io::Result<()> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        while !before.is_empty() {
            let step = || Ok(rustix::net::send(&self.socket, before, flags)?);
            let sent = self.socket.async_io(Interest::WRITABLE, step).await?;
            before = &before[sent..];
        }
        piped.splice_into(&self.socket).await?;
        if let Some(activity) = &self.activity {
            activity.record();
        }
        Ok(())
    }
}
