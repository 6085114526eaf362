//! Reports the daemon's state to a service manager (sd_notify(3), sd_watchdog_enabled(3)): ready, still
//! answering, reloading, stopping. Sends nothing if no service manager started the daemon.
//!
//! ```text
//!   started ──answers──► READY=1 ──► each interval: answers? ──yes──► WATCHDOG=1
//!                                         └──no──► a line in the log; the manager restarts a silent daemon
//! ```
//!
//! An answer is a call over the daemon's own socket, a read of its pods, and a sign of life from the threads
//! of streams. No disk, guest or other runtime is involved: a new daemon would wait for them just as long.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto_cri::v1::VersionRequest;
use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::client;

/// The variable with the service manager's socket (sd_notify(3)).
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Intervals in the manager's watchdog timeout. A round takes two at most, one for the pause and one for the
/// answer, so two answers in a row may fail.
const INTERVALS: u32 = 6;

/// The interval without a watchdog: only the first answer is waited for.
const START_INTERVAL: Duration = Duration::from_secs(10);

/// Whether the manager knows about the daemon's readiness.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Whether a service manager wants notifications from this process.
pub(super) fn is_managed() -> bool {
    std::env::var_os(SOCKET_VARIABLE).is_some()
}

/// Reports the first answer as readiness. With a watchdog, it reports every further answer, and `publish`
/// takes the outcome of each check.
pub(super) async fn report<F>(answers: impl Fn() -> F, publish: impl Fn(Result<(), String>))
where
    F: Future<Output = Result<(), String>>,
{
    if !is_managed() {
        return;
    }
    let watched = sd_notify::watchdog_enabled();
    let interval = watched.map_or(START_INTERVAL, |limit| limit / INTERVALS);
    while let Err(error) = within(interval, answers()).await {
        warn!(error, "the daemon does not answer yet");
        sleep(interval).await;
    }
    send(&[NotifyState::Ready]).await;
    IS_READY.store(true, Ordering::Release);
    let Some(limit) = watched else { return };
    info!(?limit, "the service manager watches");
    loop {
        sleep(interval).await;
        let outcome = within(interval, answers()).await;
        publish(outcome.clone());
        match outcome {
            Ok(()) => send(&[NotifyState::Watchdog]).await,
            Err(error) => warn!(error, "the daemon does not answer itself"),
        }
    }
}

/// Reports the start of a reload, and returns whether a report was sent. Before the daemon is ready it sends
/// none: the end of a reload looks like the end of a start.
pub(super) async fn reloading() -> bool {
    if !is_managed() || !IS_READY.load(Ordering::Acquire) {
        return false;
    }
    match NotifyState::monotonic_usec_now() {
        // In one message, as for Type=notify-reload (systemd.service(5)). An earlier systemd reads only the
        // first part.
        Ok(now) => send(&[NotifyState::Reloading, now]).await,
        Err(error) => {
            warn!(%error, "there is no time for the service manager");
            return false;
        }
    }
    true
}

/// Reports the end of a reload.
pub(super) async fn reloaded() {
    send(&[NotifyState::Ready]).await;
}

/// Reports the start of the daemon's stop.
pub(super) async fn stopping() {
    if is_managed() {
        send(&[NotifyState::Stopping]).await;
    }
}

/// Whether the daemon answers: on its socket, by a read of its memory, and on the threads of streams.
pub(super) async fn answers(socket: &Path, look: impl FnOnce(), streams: &Handle) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", socket.display());
    let mut client = client::connect(socket).await.map_err(|error| failed(&error))?;
    client.runtime.version(VersionRequest::default()).await.map_err(|status| failed(&status.message()))?;
    look();
    streams.spawn(async {}).await.map_err(|error| format!("the threads of streams: {error}"))
}

async fn within(limit: Duration, answer: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let late = || format!("no answer within {limit:?}");
    timeout(limit, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Sends one message. A separate thread waits, because the manager may not read at once.
async fn send(states: &[NotifyState<'static>]) {
    let text = states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let states = states.to_vec();
    let sent = tokio::task::spawn_blocking(move || sd_notify::notify(&states)).await;
    if let Err(error) = sent.unwrap_or_else(|error| Err(error.into())) {
        warn!(%error, states = text, "the service manager is not notified");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use tokio::net::UnixListener;

    use super::*;

    /// Set in the process in the daemon's role.
    const CHILD: &str = "PODVISOR_TEST_SERVICE";
    const LIMIT: Duration = Duration::from_secs(60);
    /// Marks the end of the messages.
    const END: &str = "end";

    fn is_child() -> bool {
        std::env::var_os(CHILD).is_some()
    }

    /// Runs a test of this file once more, in a process with a manager's variables, and returns its messages.
    fn as_service(test: &str, watched: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &format!("serve::service::tests::{test}")]);
        child
            .env(CHILD, "1")
            .env(SOCKET_VARIABLE, &path)
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC");
        if watched {
            child.env("WATCHDOG_USEC", LIMIT.as_micros().to_string());
        }
        // Read at once: a kernel may keep ten messages only (net.unix.max_dgram_qlen).
        let reading = std::thread::spawn(move || {
            let (mut sent, mut message) = (String::new(), [0; 256]);
            loop {
                let length = socket.recv(&mut message).unwrap();
                match std::str::from_utf8(&message[..length]).unwrap() {
                    END => return sent,
                    text => sent += text,
                }
            }
        });
        let output = child.output().unwrap();
        UnixDatagram::unbound().unwrap().send_to(END.as_bytes(), &path).unwrap();
        let sent = reading.join().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        sent
    }

    /// In the child: reports for `limits` watchdog limits, while answers come as `answer` says of their
    /// number.
    async fn report_for<F>(limits: u32, answer: impl Fn(u32) -> F)
    where
        F: Future<Output = Result<(), String>>,
    {
        let asked = Cell::new(0);
        let answers = || {
            asked.set(asked.get() + 1);
            answer(asked.get())
        };
        let _ = timeout(limits * LIMIT, report(answers, drop)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_is_reported_at_the_first_answer_and_no_earlier() {
        if !is_child() {
            let test = "readiness_is_reported_at_the_first_answer_and_no_earlier";
            return assert_eq!(as_service(test, false), "READY=1\nSTOPPING=1\n");
        }
        report_for(10, async |asked| if asked < 3 { Err("not yet".into()) } else { Ok(()) }).await;
        stopping().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_never_answers_is_never_ready() {
        if !is_child() {
            return assert_eq!(as_service("a_daemon_that_never_answers_is_never_ready", true), "");
        }
        report_for(10, async |_| pending().await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_hangs_says_nothing_more() {
        if !is_child() {
            let sent = as_service("a_daemon_that_hangs_says_nothing_more", true);
            return assert_eq!(sent, "READY=1\nWATCHDOG=1\nWATCHDOG=1\n");
        }
        report_for(10, async |asked| if asked <= 3 { Ok(()) } else { pending().await }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_daemon_answers_often_enough_though_now_and_then_it_is_late() {
        if !is_child() {
            let test = "a_healthy_daemon_answers_often_enough_though_now_and_then_it_is_late";
            let sent = as_service(test, true);
            // Rounds of one interval when it answers at once, and of two when it does not.
            return assert_eq!(sent.matches("WATCHDOG=1\n").count(), 15, "{sent}");
        }
        report_for(5, async |asked| if asked % 3 == 0 { pending().await } else { Ok(()) }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_is_reported_with_its_time_and_its_end_and_not_before_the_daemon_is_ready() {
        if !is_child() {
            let test = "a_reload_is_reported_with_its_time_and_its_end_and_not_before_the_daemon_is_ready";
            let sent = as_service(test, false);
            let lines: Vec<&str> = sent.lines().collect();
            assert_eq!(lines.len(), 4, "{sent}");
            assert_eq!([lines[0], lines[1], lines[3]], ["READY=1", "RELOADING=1", "READY=1"]);
            let time = lines[2].strip_prefix("MONOTONIC_USEC=").unwrap();
            return assert!(time.parse::<u64>().unwrap() > 0);
        }
        assert!(!reloading().await);
        report_for(1, async |_| Ok(())).await;
        assert!(reloading().await);
        reloaded().await;
    }

    #[tokio::test]
    async fn nobody_is_asked_where_there_is_no_service_manager() {
        if is_managed() {
            eprintln!("skipped: a service manager has started this test");
            return;
        }
        let answers = || async { panic!("an answer was asked for") };
        report(answers, drop).await;
        stopping().await;
    }

    #[tokio::test]
    async fn a_socket_without_a_listener_and_one_that_hangs_are_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("podvisor.sock");
        let streams = Handle::current();
        let refused = answers(&socket, || (), &streams).await.unwrap_err();
        assert!(refused.contains("podvisor.sock"), "{refused}");
        let _listener = UnixListener::bind(&socket).unwrap();
        let late = within(Duration::from_millis(1), answers(&socket, || (), &streams)).await.unwrap_err();
        assert!(late.contains("no answer within"), "{late}");
    }
}
