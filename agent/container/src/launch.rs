//! The protocol between the agent and the re-executed builder, over one unix stream socket: the builder's
//! standard input. This module has the messages and builds nothing; [`crate::builder`] is the other side.
//!
//! ```text
//! agent                                   builder process          new process of the container
//!   │ argv: container-init                     │                              │
//!   │ one byte + [stdin, stdout, stderr] ─────▶│                              │
//!   │ Launch ─────────────────────────────────▶│                              │
//!   │                                          │── clone ────────────────────▶│
//!   │◀────────────── Failed ──────────────────────────────────────────────────│ no mount, user, terminal …
//!   │◀────────────── Ready { pid } ────────────│                         held │
//!   │ START ─────────────────────────────────────────────────────────────────▶│ (or end of stream: it ends)
//!   │◀────────────── ExecFailed ──────────────────────────────────────────────│ no program; execve refused
//!   │◀────────────── end of stream ───────────────────────────────────────────│ execve done, or dead
//! ```
//!
//! The launch and the reports are JSON, one per line. A command line would be too short: it holds at most 128
//! KiB (`MAX_ARG_STRLEN`, include/uapi/linux/binfmts.h). A filter's program follows the launch as raw bytes.
//! The socket closes on exec. Its end therefore means that each of the agent's processes there has executed
//! its program, or is gone. In the other direction its end means that the agent has given the process up: a
//! process held then never executes its program.

use std::fmt::Display;
use std::io::{self, BufRead, ErrorKind, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use oci_spec::runtime::{PosixRlimitType, Process, Spec};
use proto_seccomp::{Filter, PROGRAM_BYTES_MAX};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};

use crate::exec::Exec;

/// Argument of the re-executed binary.
pub const ARGUMENT: &str = "container-init";

/// Longest report line, in bytes. The sender cuts longer messages, and the reader refuses them.
pub const REPORT_BYTES_MAX: usize = 16 * 1024;

/// Longest message within a report, in characters.
const MESSAGE_CHARS_MAX: usize = 2000;

/// Message from the agent to make a held process execute its program.
pub const START: &[u8] = b"\n";

/// Request for one process, from the agent to the builder.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// A container, or one more process in it.
    pub kind: LaunchKind,
    /// Listening unix socket for a terminal's master side. Set if and only if the process has a terminal.
    pub console_socket: Option<PathBuf>,
    /// The process's own limits.
    pub limits: Vec<ProcessLimit>,
    /// The process's system call filter.
    pub filter: Option<Arc<Filter>>,
}

/// The JSON line of a launch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<Kind> {
    kind: Kind,
    console_socket: Option<PathBuf>,
    limits: Vec<ProcessLimit>,
    filter: Option<FilterFollows>,
}

/// Announces a filter. Its program follows the line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFollows {
    bytes: usize,
    flags: u64,
}

/// A container, or one more process in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LaunchKind {
    /// Build the container of this specification, and hold it before exec.
    Create(Box<Spec>),
    /// Build one more process in a running container, and hold it before exec.
    Exec(Box<Exec>),
}

/// A limit of a process, in the terms of setrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessLimit {
    /// The limited resource.
    pub resource: PosixRlimitType,
    /// The limit in force.
    pub soft: u64,
    /// Maximum for `soft` if the process itself raises it.
    pub hard: u64,
}

impl ProcessLimit {
    /// The limits of the process's specification, in its order. If a resource is listed twice, the last limit
    /// wins.
    pub fn of(process: &Process) -> Vec<ProcessLimit> {
        let limits = process.rlimits().iter().flatten();
        let own = limits.map(|limit| ProcessLimit {
            resource: limit.typ(),
            soft: limit.soft(),
            hard: limit.hard(),
        });
        own.collect()
    }
}

impl Launch {
    /// Returns the launch as bytes for the builder.
    pub fn message(&self) -> io::Result<Vec<u8>> {
        let follows =
            |filter: &Arc<Filter>| FilterFollows { bytes: filter.program.len(), flags: filter.flags };
        let mut message = serde_json::to_vec(&Line {
            kind: &self.kind,
            console_socket: self.console_socket.clone(),
            limits: self.limits.clone(),
            filter: self.filter.as_ref().map(follows),
        })?;
        message.push(b'\n');
        message.extend(self.filter.iter().flat_map(|filter| &filter.program));
        Ok(message)
    }

    /// Reads a launch.
    pub fn read(mut from: impl BufRead) -> io::Result<Launch> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        let Line { kind, console_socket, limits, filter } = serde_json::from_slice::<Line<_>>(&line)?;
        let filter = filter.map(|follows| read_filter(follows, &mut from)).transpose()?.map(Arc::new);
        Ok(Launch { kind, console_socket, limits, filter })
    }
}

fn read_filter(follows: FilterFollows, from: &mut impl BufRead) -> io::Result<Filter> {
    if follows.bytes > PROGRAM_BYTES_MAX {
        return Err(io::Error::other("the filter is longer than the kernel takes"));
    }
    let mut program = vec![0; follows.bytes];
    from.read_exact(&mut program)?;
    Ok(Filter { program, flags: follows.flags })
}

/// A report from the builder or from the new process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The process exists, with this pid in the agent's PID namespace.
    Ready {
        /// The process's pid.
        pid: i32,
    },
    /// The process could not be built.
    Failed(Failure),
    /// The process was built and released, but the kernel refused its executable.
    ExecFailed(Failure),
}

/// Why a process could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The sort of failure.
    pub kind: FailureKind,
    /// The text of the error and of all its sources.
    pub message: String,
}

/// The kinds of failures that callers distinguish (exit codes 127 and 126 of a shell).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The executable, or the interpreter named in it, does not exist.
    ExecutableNotFound,
    /// The executable exists, but executing it is forbidden or impossible.
    ExecutableNotRunnable,
    /// The specification and the image do not fit: a path of one meets something else in the other.
    Spec,
    /// Anything else.
    Other,
}

impl Failure {
    /// A failure of this kind, with the message cut to a bounded length.
    pub fn new(kind: FailureKind, message: &str) -> Failure {
        Failure { kind, message: cut(message) }
    }

    /// A failed step, and the kernel's reason in words.
    pub fn at(step: impl Display, error: &io::Error) -> Failure {
        let reason = match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).desc().to_owned(),
            None => error.to_string(),
        };
        Failure::new(FailureKind::Other, &format!("{step}: {reason}"))
    }

    /// Like [`at`](Self::at), for a path of the specification in the container's root. If the path itself is
    /// the reason, the kind says so: a file in the place of a directory or the reverse, links in a circle, or
    /// a place refused by us (`InvalidInput` without the kernel's number).
    pub(crate) fn at_path(step: impl Display, error: &io::Error) -> Failure {
        let is_of_path = match (error.kind(), error.raw_os_error()) {
            (ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists, _)
            | (ErrorKind::InvalidInput, None) => true,
            (_, number) => number == Some(Errno::ELOOP as i32),
        };
        let kind = if is_of_path { FailureKind::Spec } else { FailureKind::Other };
        Failure { kind, ..Failure::at(step, error) }
    }

    /// An error and its sources, as one failure.
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let text = error.to_string();
            // Transparent errors repeat their source.
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = error.source();
        }
        Failure::new(FailureKind::Other, message.trim_end_matches('\0'))
    }
}

impl Report {
    /// Sends the report as one line.
    pub fn send(&self, mut socket: &UnixStream) -> io::Result<()> {
        let mut line = serde_json::to_vec(self).map_err(io::Error::other)?;
        line.push(b'\n');
        socket.write_all(&line)
    }

    /// Parses the line of a report.
    pub fn parse(line: &[u8]) -> Result<Report, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

fn cut(message: &str) -> String {
    message.chars().filter(|c| *c != '\0').take(MESSAGE_CHARS_MAX).collect()
}

/// Sends standard input, output and error to the builder.
pub fn send_stdio(socket: &UnixStream, stdio: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    send_fds(socket, &stdio)
}

/// Sends a terminal's master side to a console socket.
pub(crate) fn send_terminal(socket: &UnixStream, master: BorrowedFd<'_>) -> io::Result<()> {
    send_fds(socket, &[master])
}

/// Sends up to three descriptors with one byte.
fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives up to three descriptors sent with one byte; `None` at the end of the stream. Bytes after that one
/// stay in the socket.
///
/// A console socket receives a terminal's master side in this way, too.
pub fn receive_fds(socket: impl AsFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(if received.bytes == 0 && fds.is_empty() { None } else { Some(fds) })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    #[test]
    fn reports_arrive_line_by_line() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let reports = [
            Report::Ready { pid: 7 },
            Report::ExecFailed(Failure::at("a\nb", &io::ErrorKind::NotFound.into())),
            Report::Failed(Failure::new(FailureKind::ExecutableNotFound, "none")),
        ];
        for report in &reports {
            report.send(&ours).unwrap();
        }
        drop(ours);
        let lines = BufReader::new(theirs).split(b'\n');
        let read: Vec<Report> = lines.map(|line| Report::parse(&line.unwrap()).unwrap()).collect();
        assert_eq!(read, reports);
    }

    #[test]
    fn a_launch_stays_behind_the_descriptors_whatever_its_length() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut spec = Spec::default();
        spec.set_hostname(Some("x".repeat(100_000)));
        let launch = Launch {
            kind: LaunchKind::Create(Box::new(spec)),
            console_socket: None,
            limits: vec![ProcessLimit { resource: PosixRlimitType::RlimitNofile, soft: 1, hard: 2 }],
            filter: Some(Arc::new(Filter { program: vec![b'\n'; PROGRAM_BYTES_MAX], flags: 4 })),
        };
        let null = std::fs::File::open("/dev/null").unwrap();
        send_stdio(&ours, [null.as_fd(), null.as_fd(), null.as_fd()]).unwrap();
        (&ours).write_all(&launch.message().unwrap()).unwrap();
        drop(null);
        assert_eq!(receive_fds(&theirs).unwrap().unwrap().len(), 3);
        assert_eq!(Launch::read(BufReader::new(theirs)).unwrap(), launch);
    }

    #[test]
    fn a_long_message_fits_a_line() {
        let failure = Failure::new(FailureKind::Other, &"\u{1}".repeat(100_000));
        let line = serde_json::to_vec(&Report::Failed(failure)).unwrap();
        assert!(line.len() < REPORT_BYTES_MAX);
    }

    #[test]
    fn three_descriptors_cross_the_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send_stdio(&ours, [writer.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        drop(writer);
        let fds = receive_fds(&theirs).unwrap().unwrap();
        assert_eq!(fds.len(), 3);
        for fd in fds {
            std::fs::File::from(fd).write_all(b"x").unwrap();
        }
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "xxx");
        drop(ours);
        assert!(receive_fds(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_step_names_the_kernels_reason_in_words() {
        let failure = Failure::at("cannot mount /x", &io::Error::from_raw_os_error(libc::ENOTDIR));
        assert_eq!(failure.message, "cannot mount /x: Not a directory");
    }

    #[test]
    fn a_source_that_an_error_repeats_is_in_the_message_once() {
        #[derive(Debug, thiserror::Error)]
        #[error(transparent)]
        struct Outer(#[from] io::Error);
        let failure = Failure::from_error(&Outer(io::Error::other("inner")));
        assert_eq!(failure.message, "inner");
    }
}
