//! A process's standard streams: the descriptors that it gets, and our ends of them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::watch;

use crate::console::ConsoleSocket;
use crate::process::Streams;
use crate::streams::{Direct, Input, Output, ProcessOutput};

/// What the process is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct StdioSpec {
    pub(super) terminal: bool,
    pub(super) stdin: bool,
    /// Whether the host may open an output again, from where it was.
    pub(super) buffered: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Our ends, before the process is there.
#[derive(Debug)]
pub(super) enum Pending {
    Terminal { socket: ConsoleSocket, spec: StdioSpec },
    Pipes(Streams),
}

/// Makes the descriptors, and our ends. `console` is where a terminal's socket would be.
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
    /// The socket that a terminal comes through, if there is one.
    pub(super) fn console(&self) -> Option<PathBuf> {
        match self {
            Pending::Terminal { socket, .. } => Some(socket.path().to_owned()),
            Pending::Pipes(_) => None,
        }
    }

    /// The streams, once the process is there.
    pub(super) async fn streams(self) -> io::Result<Streams> {
        let (socket, spec) = match self {
            Pending::Pipes(streams) => return Ok(streams),
            Pending::Terminal { socket, spec } => (socket, spec),
        };
        let master = socket.receive(spec.uid, spec.gid).await?;
        let (ended, has_ended) = watch::channel(false);
        // There without a stdin too: a terminal's size goes this way.
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

/// A pipe that belongs to the process's user, who may open it again by `/dev/stdout`.
fn pipe(spec: StdioSpec) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::os::unix::fs::fchown(&writer, Some(spec.uid), Some(spec.gid))?;
    Ok((reader, writer))
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}
