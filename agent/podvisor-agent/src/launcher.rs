//! Starts the builder process, and reads its reports until the container's process is held before exec. Then
//! [`Reports`] starts the process. [`agent_container::launch`] has the protocol; [`crate::reaper`] collects
//! the builder.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent_container::launch::{
    ARGUMENT, Failure, FailureKind, Launch, REPORT_BYTES_MAX, Report, START, send_stdio,
};
use agent_container::syscall;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::pause::SELF;
use crate::reaper::{Exit, Reaper};

/// Timeout for building a process, for its exec after the release, or for both if one call does both. It is a
/// little less than the daemon's timeout for the call (`runtime/guest`), so that the daemon gets the reason.
const WITHIN: Duration = Duration::from_secs(110);
/// SIGKILL, for a hanging builder.
const KILL: u32 = 9;

/// A process built by the builder, and held before exec. If its reports are dropped, it ends.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: i32,
    pub(crate) exit: oneshot::Receiver<Exit>,
    pub(crate) reports: Reports,
}

/// The end of a call's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    within: Duration,
}

impl Deadline {
    /// The deadline of a call that begins now.
    pub(crate) fn of_call() -> Deadline {
        Deadline::within(WITHIN)
    }

    /// The deadline of a call that begins now, and whose caller waits for at most `within_ms` milliseconds; 0
    /// if the caller has no bound of its own.
    pub(crate) fn of_caller(within_ms: u32) -> Deadline {
        match within_ms {
            0 => Deadline::of_call(),
            within_ms => Deadline::within(WITHIN.min(Duration::from_millis(within_ms.into()))),
        }
    }

    fn within(within: Duration) -> Deadline {
        Deadline { at: Instant::now() + within, within }
    }

    fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }

    /// The failure of a process that `did` not do its step in time.
    fn missed(self, did: &str) -> Failure {
        let seconds = self.within.as_secs_f32();
        Failure::new(FailureKind::Other, &format!("the process {did} within {seconds} seconds"))
    }
}

/// Builds the process of `launch`, with these standard streams.
pub(crate) async fn launch(
    reaper: &Reaper,
    launch: &Launch,
    stdio: [OwnedFd; 3],
    deadline: Deadline,
) -> Result<Launched, Failure> {
    let guard = reaper.launch();
    let (socket, builder) = start(&stdio).map_err(|error| other("cannot start the builder", &error))?;
    // The builder has copies. These would keep the pipes open.
    drop(stdio);
    let mut reports = Reports { lines: BufReader::new(socket) };
    let message = launch.message().map_err(|error| other("the launch cannot be encoded", &error))?;
    let ready = async {
        // A builder reports its reason, or ends, if it does not take the whole message.
        let _ = reports.lines.write_all(&message).await;
        reports.ready().await
    };
    let pid = match timeout_at(deadline.at, ready).await {
        Ok(ready) => ready?,
        Err(_) => {
            kill(builder);
            return Err(deadline.missed("was not built"));
        }
    };
    Ok(Launched { pid, exit: reaper.watch(&guard, pid), reports })
}

/// Starts the builder. Returns its socket and pid. The reaper collects the builder's exit.
fn start(stdio: &[OwnedFd; 3]) -> io::Result<(UnixStream, u32)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let [stdin, stdout, stderr] = stdio;
    // The message waits in the socket until the builder reads it.
    send_stdio(&ours, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
    let builder = Command::new(SELF)
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, builder.id()))
}

fn kill(pid: u32) {
    // The process may already have ended.
    let _ = i32::try_from(pid).map(|pid| syscall::kill(pid, KILL));
}

/// The reports from the launch socket.
#[derive(Debug)]
pub(crate) struct Reports {
    lines: BufReader<UnixStream>,
}

impl Reports {
    /// Makes the held process execute its program, and reads until the end of the stream: then exec has
    /// happened. If the process died before exec, this is no failure here: its exit code says so. After the
    /// deadline it is not started any more.
    pub(crate) async fn start(mut self, deadline: Deadline) -> Result<(), Failure> {
        if deadline.has_passed() {
            return Err(deadline.missed("was not started"));
        }
        // The write fails if the process is gone; the read reports that.
        let _ = self.lines.write_all(START).await;
        let outcome = async {
            loop {
                match self.next().await? {
                    None => return Ok(()),
                    Some(Report::ExecFailed(failure) | Report::Failed(failure)) => return Err(failure),
                    Some(Report::Ready { .. }) => {}
                }
            }
        };
        timeout_at(deadline.at, outcome).await.unwrap_or_else(|_| Err(deadline.missed("did not exec")))
    }

    async fn ready(&mut self) -> Result<i32, Failure> {
        match self.next().await? {
            Some(Report::Ready { pid }) => Ok(pid),
            Some(Report::Failed(failure) | Report::ExecFailed(failure)) => {
                // The caller must clean up only after the builder's end.
                while self.next().await?.is_some() {}
                Err(failure)
            }
            None => Err(Failure::new(FailureKind::Other, "the builder ended without a report")),
        }
    }

    async fn next(&mut self) -> Result<Option<Report>, Failure> {
        let mut line = Vec::new();
        let limit = REPORT_BYTES_MAX as u64;
        let read = (&mut self.lines).take(limit).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => Ok(None),
            Ok(_) => Report::parse(&line).map(Some).map_err(|error| other("a report is not valid", &error)),
            // The builder ended without reading all bytes.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(other("the launch socket failed", &error)),
        }
    }
}

fn other(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureKind::Other, &format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> (Reports, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Reports { lines: BufReader::new(ours) }, theirs)
    }

    #[tokio::test]
    async fn a_held_process_is_started_and_its_end_of_the_socket_is_its_exec() {
        let (reports, mut process) = held();
        let started = tokio::spawn(reports.start(Deadline::of_call()));
        let mut byte = [0];
        process.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte, START);
        drop(process);
        started.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_refused_program_is_the_failure_of_the_start() {
        let (reports, mut process) = held();
        let refused = Failure::new(FailureKind::ExecutableNotFound, "none");
        let mut line = serde_json::to_vec(&Report::ExecFailed(refused.clone())).unwrap();
        line.push(b'\n');
        process.write_all(&line).await.unwrap();
        assert_eq!(reports.start(Deadline::of_call()).await.unwrap_err(), refused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_given_up_reads_the_end_of_its_socket() {
        let (reports, mut process) = held();
        let late = reports.start(Deadline::of_call()).await.unwrap_err();
        assert!(late.message.contains("did not exec within 110 seconds"), "{late}");
        let mut read = Vec::new();
        process.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, START);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_held_beyond_its_callers_bound_is_never_started() {
        let (reports, mut process) = held();
        let deadline = Deadline::of_caller(9_000);
        tokio::time::advance(Duration::from_secs(9)).await;
        let late = reports.start(deadline).await.unwrap_err();
        assert!(late.message.contains("was not started within 9 seconds"), "{late}");
        let mut read = Vec::new();
        process.read_to_end(&mut read).await.unwrap();
        assert!(read.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_callers_bound_counts_up_to_the_agents_own() {
        let within = |within_ms| Deadline::of_caller(within_ms).within;
        assert_eq!([within(0), within(9_000), within(u32::MAX)], [WITHIN, Duration::from_secs(9), WITHIN]);
    }
}
