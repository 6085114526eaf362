//! Signals that end a run. A call to the daemon is never given up for one: the daemon would go on, and leave
//! a pod that nobody removes. The run ends behind the call.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::show::out;

/// The signals that this process has received.
#[derive(Debug)]
pub(crate) struct Signals(watch::Receiver<Option<u8>>);

impl Signals {
    /// Takes the signals from now on. SIGHUP stays ignored if it was, as below nohup(1).
    ///
    /// # Errors
    /// No handler can be installed.
    pub(super) fn listen() -> io::Result<Signals> {
        let (sender, received) = watch::channel(None);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut hangup = (!ignores_hangup(&own)).then(|| signal(SignalKind::hangup())).transpose()?;
        tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                    Some(_) = async { hangup.as_mut()?.recv().await } => SignalKind::hangup(),
                };
                sender.send_replace(u8::try_from(signal.as_raw_value()).ok());
            }
        });
        Ok(Signals(received))
    }

    /// The latest signal, if there was one.
    pub(super) fn latest(&self) -> Option<u8> {
        *self.0.borrow()
    }

    /// Waits for the answer of a call that starts something, whatever signals come meanwhile.
    pub(super) async fn behind<T>(&mut self, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        tokio::select! {
            answer = &mut call => return answer,
            () = self.next() => out::complain("interrupted; the pod is stopped when this step has ended"),
        }
        call.await
    }

    /// Waits for a signal that this method has not yet returned for.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether a process ignores SIGHUP, by its status (proc_pid_status(5), `SigIgn`: bit 0 is signal 1).
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n") && !ignores_hangup(""));
    }

    #[tokio::test]
    async fn a_signal_before_the_wait_is_not_lost() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(signals.latest(), None);
        raise(Signal::SIGTERM).unwrap();
        signals.next().await;
        assert_eq!(signals.latest(), Some(15));
    }
}
