//! The re-executed agent that builds one container, or one more process in a container, through libcontainer,
//! and exits. The builder has one thread and lives for some milliseconds; the process that it made is then the
//! agent's child. This module holds no state and must never write to the agent's console: everything goes back as
//! a report ([`crate::launch`]).

use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use rustix::process::{Resource, Rlimit};
use tracing_subscriber::fmt::MakeWriter;

use crate::executor::ContainerExecutor;
use crate::launch::{self, Failure, Launch, LaunchKind, OpenFiles, Report};
use crate::tenant;

/// Why the builder made no process.
#[derive(Debug, thiserror::Error)]
enum BuilderError {
    #[error("the launch cannot be read")]
    Launch(#[source] io::Error),
    #[error("the launch socket failed")]
    Socket(#[from] io::Error),
    #[error("no standard streams came with the launch")]
    NoStreams,
    #[error("the limit of open files cannot be set")]
    OpenFiles(#[source] io::Error),
    #[error(transparent)]
    Container(#[from] LibcontainerError),
}

/// Runs the builder: standard input is the launch socket. Returns the process's exit code.
pub fn run() -> i32 {
    // A copy above the standard streams that closes on exec: its end of stream is the agent's signal.
    let socket = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(fd) => Arc::new(UnixStream::from(fd)),
        Err(_) => return 1,
    };
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .without_time()
        .with_ansi(false)
        .with_level(false)
        .with_writer(LogWriter(Arc::clone(&socket)))
        .init();
    let report = match build(&socket) {
        Ok(pid) => Report::Ready { pid },
        Err(error) => Report::Failed(Failure::from_error(&error)),
    };
    let failed = matches!(report, Report::Failed(_));
    // Without the agent nobody takes the report.
    let _ = report.send(&socket);
    i32::from(failed)
}

fn build(socket: &Arc<UnixStream>) -> Result<i32, BuilderError> {
    let fds = launch::receive_fds(&**socket)?.ok_or(BuilderError::NoStreams)?;
    let Ok(streams) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err(BuilderError::NoStreams);
    };
    // Nothing follows the launch on the socket, so reading ahead takes nothing from anybody.
    let launch = Launch::read(BufReader::new(&**socket)).map_err(BuilderError::Launch)?;
    if let Some(open_files) = launch.open_files {
        raise_limit(open_files).map_err(BuilderError::OpenFiles)?;
    }
    let bundle = match &launch.kind {
        LaunchKind::Create { bundle } => bundle,
        LaunchKind::Exec(exec) => return Ok(tenant::build(&launch, exec, socket, &streams)?),
    };
    let [stdin, stdout, stderr] = streams;
    let executor = ContainerExecutor { socket: Arc::clone(socket), seccomp: None, held: true };
    let container = ContainerBuilder::new(launch.container_id.clone(), SyscallType::default())
        .with_root_path(&launch.state_root)?
        .with_console_socket(launch.console_socket.as_ref())
        .with_stdin(stdin)
        .with_stdout(stdout)
        .with_stderr(stderr)
        .validate_id()?
        .with_executor(executor)
        .as_init(bundle)
        .with_systemd(false)
        .with_detach(true)
        .build()?;
    let pid = container.pid().map(nix_pid);
    pid.ok_or_else(|| LibcontainerError::Other("the container has no process".into()).into())
}

/// Raises this process's own limit to the one of the container's process. In a user namespace the limit is set by
/// the namespace's root, who may only lower it.
fn raise_limit(open_files: OpenFiles) -> io::Result<()> {
    let (current, maximum) = (Some(open_files.soft), Some(open_files.hard));
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

/// Converts a pid of libcontainer's, which are of another version of nix than ours.
fn nix_pid(pid: impl Into<libc::pid_t>) -> i32 {
    pid.into()
}

/// Sends errors that libcontainer logs as reports: they have the detail that its error values lose on their way
/// between processes.
#[derive(Clone, Debug)]
struct LogWriter(Arc<UnixStream>);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        Report::log(String::from_utf8_lossy(line).trim()).send(&self.0)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        self.clone()
    }
}
