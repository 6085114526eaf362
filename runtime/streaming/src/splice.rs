//! The shortest way to a client: from a pipe to its socket, by the kernel alone. It is there where nothing is done to
//! bytes on the way, so not by TLS.

use std::io;
use std::os::fd::AsFd;

use runtime_pieces::Piped;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::idle::LastActivity;

/// A second descriptor of a client's connection. Whoever writes to the first one must be done before it is used.
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

    /// Tells of all that goes this way.
    pub(crate) fn with_activity(self, activity: LastActivity) -> SpliceSender {
        SpliceSender { activity: Some(activity), ..self }
    }

    /// Sends the bytes before a piece and the piece, in one packet if they fit.
    pub(crate) async fn send(&self, mut before: &[u8], piped: Piped) -> io::Result<()> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        while !before.is_empty() {
            let step = || Ok(rustix::net::send(&self.socket, before, flags)?);
            let sent = self.socket.async_io(Interest::WRITABLE, step).await?;
            before = &before[sent..];
        }
        piped.pour(&self.socket).await?;
        if let Some(activity) = &self.activity {
            activity.record();
        }
        Ok(())
    }
}
