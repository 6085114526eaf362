//! The two ways of a connection that is carried from one socket to another. Each has its own end, and a
//! failure of one must not drop bytes of the other. Used on both sides of a VM; knows no protocol.

#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 8 * 1024;

/// How long one way may go on after a failure of the other, as with containerd's port-forward.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Copies bytes to their end, and passes the end on. A failure is an end, too, after all bytes before it.
///
/// # Errors
/// The first failure of either side.
pub async fn copy<R, W>(from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let copied = copy_all(from, to).await;
    copied.and(to.shutdown().await)
}

// tokio's own copy drops bytes in transit when a read fails.
async fn copy_all<R, W>(from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk).await? {
            0 => return Ok(()),
            count => to.write_all(&chunk[..count]).await?,
        }
    }
}

/// Waits for the ends of both ways. A server may answer and close without reading the question, so a failure
/// of one way leaves the other some time.
///
/// # Errors
/// The first way's failure, or that of the other one after it.
pub async fn both<A, B>(one: A, other: B) -> io::Result<()>
where
    A: Future<Output = io::Result<()>>,
    B: Future<Output = io::Result<()>>,
{
    tokio::pin!(one, other);
    tokio::select! {
        ended = &mut one => rest(ended, other).await,
        ended = &mut other => rest(ended, one).await,
    }
}

async fn rest(ended: io::Result<()>, other: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    match ended {
        Ok(()) => other.await,
        Err(error) => {
            let _ = timeout(AFTER_FAILURE, other).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_carried_though_its_server_takes_no_question() {
        let ((mut client, ours), (theirs, mut server)) = (duplex(64), duplex(64));
        server.write_all(b"too large").await.unwrap();
        drop(server);
        client.write_all(b"question").await.unwrap();
        let carrying = tokio::spawn(async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (tokio::io::split(ours), tokio::io::split(theirs));
            // In this order: the question fails first.
            let question = copy(&mut from_client, &mut to_server).await;
            both(async { question }, copy(&mut from_server, &mut to_client)).await
        });
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too large");
        carrying.await.unwrap().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_without_an_end_ends_a_little_after_a_failure_of_the_other() {
        let broken = || async { Err(io::ErrorKind::BrokenPipe.into()) };
        both(broken(), pending()).await.unwrap_err();
        both(pending(), broken()).await.unwrap_err();
    }

    #[tokio::test]
    async fn bytes_before_a_failure_are_passed_on_and_then_the_end() {
        /// Fails after its bytes.
        struct Broken;

        impl AsyncRead for Broken {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }

        let (mut client, mut ours) = duplex(2);
        let copying = tokio::spawn(async move { copy(&mut (&b"answer"[..]).chain(Broken), &mut ours).await });
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        copying.await.unwrap().unwrap_err();
    }
}
