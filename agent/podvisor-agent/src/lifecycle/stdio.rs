//! A process's standard streams: the process's descriptors, and the agent's ends. [`crate::streams`] serves
//! the agent's ends.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::watch;

use crate::console::{ConsoleSocket, Terminal};
use crate::process::Streams;
use crate::streams::{self, Direct, Input, Output, ProcessOutput};

/// The requested standard streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct StdioSpec {
    pub(super) terminal: bool,
    pub(super) stdin: bool,
    /// Whether output is held until the host acknowledges it, so that the host may reopen a stream.
    pub(super) buffered: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The agent's ends, before the process exists.
#[derive(Debug)]
pub(super) enum Pending {
    Terminal { socket: ConsoleSocket, spec: StdioSpec },
    Pipes(Streams),
}

/// Makes the process's descriptors and the agent's ends. `console` is the path for a terminal's socket.
pub(super) fn make(spec: StdioSpec, console: PathBuf) -> io::Result<([OwnedFd; 3], Pending)> {
    if spec.terminal {
        let socket = ConsoleSocket::bind(console)?;
        return Ok(([null()?, null()?, null()?], Pending::Terminal { socket, spec }));
    }
    let (ended, has_ended) = watch::channel(false);
    let (stdin, input) = if spec.stdin {
        let (reader, writer) = pipe(spec)?;
        (reader, Some(Input::new(writer, false, has_ended.clone())?))
    } else {
        (null()?, None)
    };
    let (out_reader, stdout) = pipe(spec)?;
    let (error_reader, stderr) = pipe(spec)?;
    let streams = Streams {
        stdin: input,
        stdout: output(spec, out_reader, has_ended.clone())?,
        stderr: Some(output(spec, error_reader, has_ended)?),
        ended,
    };
    Ok(([stdin, stdout, stderr], Pending::Pipes(streams)))
}

impl Pending {
    /// The socket for a terminal, if there is one.
    pub(super) fn console(&self) -> Option<PathBuf> {
        match self {
            Pending::Terminal { socket, .. } => Some(socket.path().to_owned()),
            Pending::Pipes(_) => None,
        }
    }

    /// Returns the streams, once the process exists.
    pub(super) async fn streams(self) -> io::Result<Streams> {
        let (socket, spec) = match self {
            Pending::Pipes(streams) => return Ok(streams),
            Pending::Terminal { socket, spec } => (socket, spec),
        };
        let Terminal { master, other_side } = socket.receive(spec.uid).await?;
        let (ended, has_ended) = watch::channel(false);
        streams::hold_terminal(other_side, has_ended.clone())?;
        // Even without a stdin a terminal needs an input: it carries the terminal's size.
        let stdin = Some(Input::new(master.try_clone()?, true, has_ended.clone())?);
        Ok(Streams { stdin, stdout: output(spec, master, has_ended)?, stderr: None, ended })
    }
}

fn output(spec: StdioSpec, source: OwnedFd, ended: watch::Receiver<bool>) -> io::Result<ProcessOutput> {
    Ok(match spec.buffered {
        true => ProcessOutput::Buffered(Output::start(source, ended)?),
        false => ProcessOutput::Direct(Direct::new(source, ended)?),
    })
}

/// A pipe owned by the process's user. The process may reopen it as `/dev/stdout`.
fn pipe(spec: StdioSpec) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::os::unix::fs::fchown(&writer, Some(spec.uid), Some(spec.gid))?;
    Ok((reader, writer))
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}
