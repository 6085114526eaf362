//! Closes a connection after hours without traffic in either direction. No shorter silence ends a session.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a connection may be silent, the same as in the kubelet (streamingConnectionIdleTimeout).
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// A stream with failing reads after it was idle for too long.
#[derive(Debug)]
pub(crate) struct IdleTimeout<S> {
    inner: S,
    activity: LastActivity,
    alarm: Pin<Box<Sleep>>,
}

/// Time of the last traffic on a connection.
#[derive(Clone, Debug)]
pub(crate) struct LastActivity(Arc<Mutex<Instant>>);

impl<S> IdleTimeout<S> {
    pub(crate) fn new(inner: S) -> IdleTimeout<S> {
        let activity = LastActivity(Arc::new(Mutex::new(Instant::now())));
        let alarm = Box::pin(tokio::time::sleep_until(activity.last() + IDLE));
        IdleTimeout { inner, activity, alarm }
    }

    /// Returns the record of activity, for senders bypassing this stream (`splice.rs`).
    pub(crate) fn activity(&self) -> LastActivity {
        self.activity.clone()
    }
}

impl LastActivity {
    /// Records traffic at the current time.
    pub(crate) fn record(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.inner).poll_read(context, buffer) {
            self.activity.record();
            return Poll::Ready(outcome);
        }
        while self.alarm.as_mut().poll(context).is_ready() {
            let until = self.activity.last() + IDLE;
            if until <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.alarm.as_mut().reset(until);
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        if written.is_ready() {
            self.activity.record();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        if written.is_ready() {
            self.activity.record();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_hours_of_silence_both_ways_end_a_connection() {
        let (near, _far) = tokio::io::duplex(64);
        let (mut read, mut write) = tokio::io::split(IdleTimeout::new(near));
        let reading = tokio::spawn(async move { read.read_u8().await });
        tokio::time::sleep(IDLE * 3 / 4).await;
        write.write_all(b"x").await.unwrap();
        tokio::time::sleep(IDLE * 3 / 4).await;
        assert!(!reading.is_finished());
        tokio::time::sleep(IDLE).await;
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
