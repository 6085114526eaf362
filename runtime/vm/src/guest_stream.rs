//! Streams opened by a guest. The VMM gives each a number, and the daemon dials to accept it. The daemon
//! never takes a descriptor from a VMM, because a compromised VMM would keep a duplicate of it.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// Longest time a VMM may leave its queue of diallers full.
const QUEUED_WITHIN: Duration = Duration::from_secs(20);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Accepts the stream with this number over the VMM's vsock socket. If the stream is gone, the result ends at
/// once.
///
/// # Errors
/// The VMM takes no dials.
pub(crate) async fn accept(vsock: &Path, number: u64) -> io::Result<UnixStream> {
    let deadline = Instant::now() + QUEUED_WITHIN;
    let mut stream = loop {
        match UnixStream::connect(vsock).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            connected => break connected?,
        }
    };
    // There is always room for a socket's first bytes.
    stream.write_all(format!("ACCEPT {number}\n").as_bytes()).await?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_stream_is_dialled_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vsock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut stream = accept(&path, 16).await.unwrap();
        let (mut vmm, _) = listener.accept().await.unwrap();
        let mut line = [0; 10];
        vmm.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"ACCEPT 16\n");
        vmm.write_all(b"word").await.unwrap();
        drop(vmm);
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"word");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vmm_with_a_full_queue_is_tried_again_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vsock");
        let listener =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
                .unwrap();
        rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = accept(&path, 1).await.unwrap();
        assert_eq!(accept(&path, 2).await.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (third, ()) = tokio::join!(accept(&path, 3), async {
            sleep(Duration::from_secs(1)).await;
            drop(rustix::net::accept(&listener).unwrap());
        });
        third.unwrap();
        drop(first);
    }
}
