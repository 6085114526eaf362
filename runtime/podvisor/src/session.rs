//! A session with a command or a container, over the daemon's URL for it. This process's streams become the
//! session's. The caller chooses the session.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use runtime_spec::StartFailure;
use runtime_streaming::client::{self, DialError, Event, Receiver, Sender};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::detach_keys::DetachKeys;
use crate::show::out::{self, ReaderGone};
use crate::terminal::{self, Raw};

/// Bytes per read from standard input.
const CHUNK_BYTES: usize = 16 * 1024;

/// Longest accepted status, in bytes.
const STATUS_BYTES_MAX: usize = 64 * 1024;

/// Additional certificate authorities for a session over TLS.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Certificates in PEM to trust besides the system's, if the daemon serves streams with TLS.
    #[arg(long, value_name = "FILE", env = "PODVISOR_STREAMING_CA")]
    streaming_ca: Option<PathBuf>,
}

impl Trust {
    /// Connects to a session's URL.
    pub(crate) async fn dial(&self, url: &str, protocol: &str) -> anyhow::Result<(Sender, Receiver)> {
        match client::dial(url, protocol, self.streaming_ca.as_deref()).await {
            Err(error @ DialError::Untrusted(_)) => Err(anyhow!(
                "{:#}; --streaming-ca or PODVISOR_STREAMING_CA names a file with its authority",
                anyhow::Error::from(error)
            )),
            outcome => Ok(outcome?),
        }
    }
}

/// The streams and features of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    /// Standard error; a terminal has none.
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
    /// Whether the detach keys leave the session.
    pub(crate) detachable: bool,
    /// Whether the end of standard input is the session's, too. The session of an attached client ends soon
    /// after its input, and with it the output.
    pub(crate) ends_input: bool,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command or the container ended, a command with this code.
    Exited(u8),
    /// The detach keys were pressed.
    Detached,
    /// This process received this signal.
    Signalled(u8),
}

/// This side's ends of a session's streams.
pub(crate) struct Ends {
    /// `None` for a session without a standard input. A read that a broken session leaves is the next one's.
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: Box<dyn Write>,
    pub(crate) stderr: Box<dyn Write>,
}

impl Ends {
    /// This process's own streams.
    pub(crate) fn own() -> io::Result<Ends> {
        // A second descriptor, so nothing is read ahead into a buffer of the process.
        let stdin = File::from_std(io::stdin().as_fd().try_clone_to_owned()?.into());
        Ok(Ends { stdin: Some(stdin), stdout: Box::new(io::stdout()), stderr: Box::new(io::stderr()) })
    }
}

/// A failure of this process's own streams. The session could go on.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
struct OwnStreamError {
    doing: &'static str,
    source: io::Error,
}

fn own<T>(doing: &'static str, outcome: io::Result<T>) -> Result<T, OwnStreamError> {
    outcome.map_err(|source| OwnStreamError { doing, source })
}

/// Whether a session failed for one of this process's own streams.
pub(crate) fn is_of_own_streams(error: &anyhow::Error) -> bool {
    error.is::<OwnStreamError>() || error.is::<ReaderGone>()
}

/// An output that notes whether anything was written to it.
pub(crate) struct Noted {
    pub(crate) output: Box<dyn Write>,
    pub(crate) has_output: Rc<Cell<bool>>,
}

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.has_output.set(true);
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Carries the session to its end, with this process's own streams.
pub(crate) async fn carry(url: &str, wanted: Wanted, trust: &Trust) -> anyhow::Result<Ended> {
    carry_between(url, wanted, trust, &mut Ends::own().context("standard input")?).await
}

/// Carries the session to its end, with these streams. They may carry another session afterwards.
pub(crate) async fn carry_between(
    url: &str,
    wanted: Wanted,
    trust: &Trust,
    ends: &mut Ends,
) -> anyhow::Result<Ended> {
    let (mut sender, receiver) = trust.dial(url, client::COMMAND).await?;
    let mut ids = HashMap::new();
    let names = [
        ("error", true),
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr),
        ("resize", wanted.tty),
    ];
    for (name, _) in names.into_iter().filter(|(_, wanted)| *wanted) {
        ids.insert(name, sender.open(&[("streamtype", name)]).await?);
    }
    // Entered after everything that may print an error, and left before anything else is printed.
    let _raw = if wanted.tty && wanted.stdin { own("taking the terminal", Raw::enter())? } else { None };
    let wanted = Wanted { detachable: wanted.detachable && wanted.tty, ..wanted };
    let Ends { stdin, stdout, stderr } = ends;
    tokio::select! {
        status = receive(receiver, &ids, &mut **stdout, &mut **stderr) => parse_status(&status?),
        ended = send_stdin(&sender, ids.get("stdin").copied(), stdin.as_mut(), wanted) => ended,
        ended = send_sizes(&sender, ids.get("resize").copied()) => ended,
        ended = signalled(wanted.tty) => ended,
    }
}

/// Writes output to its streams. Returns the session's final status.
async fn receive(
    mut receiver: Receiver,
    ids: &HashMap<&'static str, u32>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> anyhow::Result<Vec<u8>> {
    let mut status = Vec::new();
    let is = |name, id| ids.get(name) == Some(&id);
    while let Some(event) = receiver.next().await.context("the daemon broke off the session")? {
        match event {
            Event::Data { id, bytes, fin } if is("error", id) => {
                status.extend_from_slice(&bytes);
                if fin {
                    return Ok(status);
                }
                if status.len() > STATUS_BYTES_MAX {
                    bail!("the daemon's status has no end");
                }
            }
            Event::Data { id, bytes, .. } if is("stdout", id) => {
                // A blocking write: the session waits for the reader of this process's output.
                match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(ReaderGone.into()),
                    written => own("writing the output", written)?,
                }
            }
            Event::Data { id, bytes, .. } if is("stderr", id) => {
                own("writing the errors", stderr.write_all(&bytes))?;
            }
            _ => {}
        }
    }
    bail!("the daemon broke off the session")
}

/// Parses the session's outcome from a `metav1.Status`.
fn parse_status(status: &[u8]) -> anyhow::Result<Ended> {
    let status: serde_json::Value = serde_json::from_slice(status).context("the daemon's status")?;
    if status["status"] == "Success" {
        return Ok(Ended::Exited(0));
    }
    let cause = &status["details"]["causes"][0];
    let text = cause["message"].as_str().unwrap_or_default();
    if status["reason"] == "NonZeroExitCode" {
        return Ok(Ended::Exited(text.parse().unwrap_or(u8::MAX)));
    }
    let text = if text.is_empty() { status["message"].as_str().unwrap_or_default() } else { text };
    match cause["reason"].as_str().and_then(StartFailure::from_name) {
        Some(failure) => {
            out::complain(text);
            Ok(Ended::Exited(failure.exit_code()))
        }
        None => bail!("{text}"),
    }
}

/// Sends standard input. Returns only if the detach keys leave the session.
async fn send_stdin(
    sender: &Sender,
    stream: Option<u32>,
    stdin: Option<&mut File>,
    wanted: Wanted,
) -> anyhow::Result<Ended> {
    let (Some(stream), Some(stdin)) = (stream, stdin) else { return std::future::pending().await };
    let mut keys = DetachKeys::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = own("reading standard input", stdin.read(&mut chunk).await)?;
        let typed = &chunk[..count];
        let (typed, left) = if wanted.detachable { keys.typed(typed) } else { (typed.to_vec(), false) };
        if count == 0 && !wanted.ends_input {
            return std::future::pending().await;
        }
        // The end of a session is detected by its status, not here.
        let sent = sender.send(stream, typed.into(), count == 0).await;
        if left {
            return Ok(Ended::Detached);
        }
        if count == 0 || sent.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Sends the terminal's size, now and whenever it changes.
async fn send_sizes(sender: &Sender, stream: Option<u32>) -> anyhow::Result<Ended> {
    let Some(stream) = stream else { return std::future::pending().await };
    let mut changed = signal(SignalKind::window_change())?;
    loop {
        if let Some((columns, rows)) = terminal::size() {
            let size = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
            let _ = sender.send(stream, size.into(), false).await;
        }
        changed.recv().await;
    }
}

/// Waits for a signal to end the session. With a terminal, signals must not end this process before the
/// terminal is restored. Without one they act as on any process.
async fn signalled(tty: bool) -> anyhow::Result<Ended> {
    if !tty {
        return std::future::pending().await;
    }
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(Ended::Signalled(tokio::select! {
        _ = hangup.recv() => 1,
        _ = interrupt.recv() => 2,
        _ = quit.recv() => 3,
        _ = terminate.recv() => 15,
    }))
}

impl Ended {
    /// Returns this process's exit code, in the convention of shells.
    pub(crate) fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::Detached => 0,
            Ended::Signalled(signal) => 128 + signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_code_or_a_failure_with_a_text() {
        let ended = |text: &str| parse_status(text.as_bytes());
        assert_eq!(ended(r#"{"metadata":{},"status":"Success"}"#).unwrap(), Ended::Exited(0));
        let code = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(ended(code).unwrap(), Ended::Exited(3));
        let missing = r#"{"status":"Failure","reason":"InternalError","details":{"causes":[{"reason":"ExecutableNotFound","message":"no"}]}}"#;
        assert_eq!(ended(missing).unwrap(), Ended::Exited(127));
        // The text alone decides nothing.
        let text = r#"{"status":"Failure","reason":"InternalError","details":{"causes":[{"message":"executable `x` not found"}]}}"#;
        assert_eq!(ended(text).unwrap_err().to_string(), "executable `x` not found");
        let failed = r#"{"status":"Failure","reason":"InternalError","message":"no such container"}"#;
        assert_eq!(ended(failed).unwrap_err().to_string(), "no such container");
        assert!(ended("").is_err());
        assert_eq!(Ended::Signalled(15).code(), 143);
    }
}
