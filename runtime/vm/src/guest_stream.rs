//! A stream that a guest has opened, by a descriptor of its VMM's. A VMM that was taken over hands over any descriptor, and keeps a
//! duplicate of it: whether calls on it block is not ours to set. So it has to be a socket, and no call here ever waits in the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, recv, send, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::reactor;

/// See the module's documentation.
#[derive(Debug)]
pub struct GuestStream(AsyncFd<OwnedFd>);

#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write,
}

impl GuestStream {
    /// Takes a descriptor for a stream.
    ///
    /// # Errors
    /// It is no stream socket of this node's own, or cannot be watched.
    pub fn new(descriptor: OwnedFd) -> io::Result<GuestStream> {
        match check(descriptor.as_fd()) {
            Ok(()) => reactor::watch(descriptor).map(GuestStream),
            Err(error) => {
                dispose(vec![descriptor]);
                Err(error)
            }
        }
    }

    /// The socket itself. Calls on it may block.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_inner()
    }

    /// Runs a call that does not wait, each time that the socket is ready for it.
    fn poll<T>(
        &self,
        direction: Direction,
        context: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Poll<io::Result<T>> {
        loop {
            let mut guard = ready!(match direction {
                Direction::Read => self.0.poll_read_ready(context),
                Direction::Write => self.0.poll_write_ready(context),
            })?;
            match call(self.0.get_ref().as_fd()) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                done => return Poll::Ready(done.map_err(io::Error::from)),
            }
        }
    }
}

fn check(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let found = (socket_domain(descriptor)?, socket_type(descriptor)?);
    if found == (AddressFamily::UNIX, SocketType::STREAM) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the VMM's descriptor is no stream socket of the node"))
}

/// Closes descriptors that nobody asked for, in a thread of its own: the last close of a file may wait for a server.
pub(crate) fn dispose(descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty() {
        // Without a thread they are closed here.
        let _ = std::thread::Builder::new().name("dispose".to_owned()).spawn(move || drop(descriptors));
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll(Direction::Read, context, |socket| {
            recv(socket, into.initialize_unfilled(), RecvFlags::DONTWAIT).map(|(count, _)| count)
        });
        let count = ready!(read)?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(Direction::Write, context, |socket| {
            send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.0.get_ref(), Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_stream_that_its_vmm_makes_blocking_holds_nobody_up() {
        let (ours, vmms) = UnixStream::pair().unwrap();
        // What a VMM keeps is the same open file, with the same flags.
        let kept = ours.try_clone().unwrap();
        let mut stream = GuestStream::new(ours.into()).unwrap();
        kept.set_nonblocking(false).unwrap();
        // The test has one thread: a call that waits in the kernel would end it never.
        let silent = tokio::time::timeout(Duration::from_millis(10), stream.read_u8()).await;
        assert!(silent.is_err());
        let flood = vec![7; 8 << 20];
        let full = tokio::time::timeout(Duration::from_millis(100), stream.write_all(&flood)).await;
        assert!(full.is_err());
        std::io::Write::write_all(&mut &vmms, b"word").unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
        vmms.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(stream.read(&mut word).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn what_is_no_stream_socket_is_refused() {
        let datagrams = UnixDatagram::pair().unwrap().0;
        let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = tempfile::tempfile().unwrap();
        for descriptor in [datagrams.into(), network.into(), OwnedFd::from(file)] {
            GuestStream::new(descriptor).unwrap_err();
        }
    }
}
