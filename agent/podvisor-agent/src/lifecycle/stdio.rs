//! A process's standard streams: the descriptors that it gets, and our ends of them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::watch;

use crate::console::ConsoleSocket;
use crate::process::Streams;
use crate::streams::{Direct, Input, Outlet, Output};

/// What the process is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) terminal: bool,
    pub(super) stdin: bool,
    /// Whether the host may open an output again, from where it was.
    pub(super) kept: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Our ends, before the process is there.
#[derive(Debug)]
pub(super) enum Pending {
    Terminal { socket: ConsoleSocket, wanted: Wanted },
    Pipes(Streams),
}

/// Makes the descriptors, and our ends. `console` is where a terminal's socket would be.
pub(super) fn make(wanted: Wanted, console: PathBuf) -> io::Result<([OwnedFd; 3], Pending)> {
    if wanted.terminal {
        let socket = ConsoleSocket::bind(console)?;
        return Ok(([null()?, null()?, null()?], Pending::Terminal { socket, wanted }));
    }
    let (ended, has_ended) = watch::channel(false);
    let (stdin, input) = if wanted.stdin {
        let (reader, writer) = pipe(wanted)?;
        (reader, Some(Input::new(writer, false, has_ended.clone())?))
    } else {
        (null()?, None)
    };
    let (out_reader, stdout) = pipe(wanted)?;
    let (error_reader, stderr) = pipe(wanted)?;
    let streams = Streams {
        stdin: input,
        stdout: outlet(wanted, out_reader, has_ended.clone())?,
        stderr: Some(outlet(wanted, error_reader, has_ended)?),
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
        let (socket, wanted) = match self {
            Pending::Pipes(streams) => return Ok(streams),
            Pending::Terminal { socket, wanted } => (socket, wanted),
        };
        let master = socket.receive(wanted.uid, wanted.gid).await?;
        let (ended, has_ended) = watch::channel(false);
        // There without a stdin too: a terminal's size goes this way.
        let stdin = Some(Input::new(master.try_clone()?, true, has_ended.clone())?);
        Ok(Streams { stdin, stdout: outlet(wanted, master, has_ended)?, stderr: None, ended })
    }
}

fn outlet(wanted: Wanted, source: OwnedFd, ended: watch::Receiver<bool>) -> io::Result<Outlet> {
    Ok(match wanted.kept {
        true => Outlet::Kept(Output::start(source, ended)?),
        false => Outlet::Direct(Direct::new(source, ended)?),
    })
}

/// A pipe that belongs to the process's user, who may open it again by `/dev/stdout`.
fn pipe(wanted: Wanted) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::os::unix::fs::fchown(&writer, Some(wanted.uid), Some(wanted.gid))?;
    Ok((reader, writer))
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}
