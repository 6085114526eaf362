//! The re-executed agent that builds one container, or one more process in it, through libcontainer,
//! and exits. It has one thread, and it lives for some milliseconds; what it made is then the agent's
//! child. It holds no state, and it never writes to the agent's console.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::oci_spec::runtime::{PosixRlimitType, Process, Spec};
use libcontainer::syscall::syscall::SyscallType;
use rustix::process::{Resource, Rlimit};
use tracing_subscriber::fmt::MakeWriter;

use crate::executor::ContainerExecutor;
use crate::launch::{self, Failure, Launch, LaunchKind, Report};
use crate::tenant;

/// Why the builder could not begin.
#[derive(Debug, thiserror::Error)]
enum BuilderError {
    #[error("the launch parameters are not valid")]
    Parameters(#[from] serde_json::Error),
    #[error("the launch socket failed")]
    Socket(#[from] io::Error),
    #[error("no standard streams came with the launch")]
    NoStreams,
    #[error("the container's specification cannot be read")]
    Spec(#[from] libcontainer::oci_spec::OciSpecError),
    #[error(transparent)]
    Container(#[from] LibcontainerError),
}

/// Runs the builder: `argument` is a [`Launch`] as JSON, standard input the launch socket. Returns the
/// process's exit code.
pub fn run(argument: &str) -> i32 {
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
    let report = match build(argument, &socket) {
        Ok(pid) => Report::Ready { pid },
        Err(error) => Report::Failed(Failure::from_error(&error)),
    };
    let failed = matches!(report, Report::Failed(_));
    // Without the agent there is nobody to tell.
    let _ = report.send(&socket);
    i32::from(failed)
}

fn build(argument: &str, socket: &Arc<UnixStream>) -> Result<i32, BuilderError> {
    let launch: Launch = serde_json::from_str(argument)?;
    let fds = launch::receive_fds(&**socket)?.ok_or(BuilderError::NoStreams)?;
    let Ok(streams) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err(BuilderError::NoStreams);
    };
    let builder = |[stdin, stdout, stderr]: [OwnedFd; 3]| {
        ContainerBuilder::new(launch.container_id.clone(), SyscallType::default())
            .with_root_path(&launch.state_root)?
            .with_console_socket(launch.console_socket.as_ref())
            .with_stdin(stdin)
            .with_stdout(stdout)
            .with_stderr(stderr)
            .validate_id()
    };
    match &launch.kind {
        LaunchKind::Create { bundle } => {
            raise_limits(Spec::load(bundle.join("config.json"))?.process().as_ref())?;
            let executor = ContainerExecutor { socket: Arc::clone(socket), seccomp: None };
            let container = builder(streams)?
                .with_executor(executor)
                .as_init(bundle)
                .with_systemd(false)
                .with_detach(true)
                .build()?;
            container
                .pid()
                .map(nix_pid)
                .ok_or_else(|| LibcontainerError::Other("the container has no process".into()).into())
        }
        LaunchKind::Exec { process } => {
            let wanted: Process = serde_json::from_reader(File::open(process)?)?;
            raise_limits(Some(&wanted))?;
            let spec = container_spec(&launch)?;
            // libcontainer does not put the container's filter on further processes.
            let seccomp = spec.linux().as_ref().and_then(|linux| linux.seccomp().clone()).map(Arc::new);
            let executor = ContainerExecutor { socket: Arc::clone(socket), seccomp };
            if tenant::has_user_namespace(&spec) {
                return Ok(tenant::build(&launch, spec, wanted, executor, &streams)?);
            }
            let pid = builder(streams)?
                .with_executor(executor)
                .as_tenant()
                .with_process(Some(process))
                .with_detach(true)
                .build()?;
            Ok(nix_pid(pid))
        }
    }
}

/// Raises this process's own limits to what the container's first process is to have: root of a user
/// namespace, which is who sets them there, may only lower them.
fn raise_limits(process: Option<&Process>) -> Result<(), BuilderError> {
    for limit in process.and_then(|process| process.rlimits().as_ref()).into_iter().flatten() {
        if limit.typ() == PosixRlimitType::RlimitNofile {
            let (current, maximum) = (Some(limit.soft()), Some(limit.hard()));
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })
                .map_err(io::Error::from)?;
        }
    }
    Ok(())
}

/// libcontainer's pids are of another version of nix than ours.
fn nix_pid(pid: impl Into<libc::pid_t>) -> i32 {
    pid.into()
}

/// What the container was made of.
fn container_spec(launch: &Launch) -> Result<Spec, BuilderError> {
    let state = launch.state_root.join(&launch.container_id);
    let container = libcontainer::container::Container::load(state)?;
    Ok(Spec::load(container.bundle().join("config.json"))?)
}

/// Whether loading a filter in this process needs CAP_SYS_ADMIN until exec: see
/// [`crate::spec::exec_process`].
pub(crate) fn seccomp_needs_privilege(process: &Process) -> bool {
    process.no_new_privileges() != Some(true)
}

/// What libcontainer logs as an error becomes a report: it is the detail that its errors lose on
/// their way between processes.
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
