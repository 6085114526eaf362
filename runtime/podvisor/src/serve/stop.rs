//! The reasons for a daemon to stop: SIGTERM, SIGINT, and for a private daemon the end of the pipe from its
//! command. A separate thread waits for them, so the daemon's work never delays a signal.

use std::io::{self, Read};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Listens from now on. The future resolves at the first reason to stop. A later signal calls `at_once`, to
/// end the process.
pub(super) fn listen(
    pipe: Option<Box<dyn Read + Send>>,
    at_once: impl FnOnce() + Send + 'static,
) -> io::Result<impl Future<Output = ()>> {
    let (sender, mut reasons) = mpsc::channel(1);
    if let Some(mut pipe) = pipe {
        let sender = sender.clone();
        thread::Builder::new().name("command".into()).spawn(move || {
            // Nothing is ever written to the pipe. The kernel closes it however the command ends.
            let _ = io::copy(&mut pipe, &mut io::sink());
            let _ = sender.blocking_send(());
        })?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(guard);
    thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            let mut at_once = Some(at_once);
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                // Full or closed: the daemon is already stopping.
                if sender.try_send(()).is_err()
                    && let Some(at_once) = at_once.take()
                {
                    at_once();
                }
            }
        });
    })?;
    Ok(async move {
        reasons.recv().await;
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_stops_and_the_second_ends_at_once() {
        let (sender, mut ended) = mpsc::unbounded_channel();
        let stop = listen(None, move || sender.send(()).unwrap()).unwrap();
        tokio::pin!(stop);
        assert!(tokio::time::timeout(Duration::ZERO, &mut stop).await.is_err());
        raise(Signal::SIGTERM).unwrap();
        stop.await;
        assert!(ended.try_recv().is_err());
        raise(Signal::SIGTERM).unwrap();
        ended.recv().await.unwrap();
    }

    #[tokio::test]
    async fn a_private_daemon_stops_when_its_command_has_ended() {
        let (from_command, command) = io::pipe().unwrap();
        let stop = listen(Some(Box::new(from_command)), || {}).unwrap();
        drop(command);
        stop.await;
    }
}
