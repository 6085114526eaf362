//! Steps of a container's new process before it executes its program. The process has one thread and was made
//! by [`crate::builder`]. It reports its failures to the agent itself. Nothing of it runs without the agent's
//! byte: a process that the agent has given up reads the end of the socket instead, and ends.
//!
//! ```text
//!  first process                                     one more process
//!    session, keys, cgroup, namespaces of its own      session, keys, the container's namespaces
//!    root: mounts, devices, pivot                      │
//!    standard streams                                  standard streams
//!    read-only root, working directory                 working directory
//!    user, capabilities                                user, capabilities
//!            └──────────────────────┬──────────────────────────┘
//!                                   ▼
//!                    "set up"; waits for the agent's byte
//!                    program found
//!                    filter loaded, execve
//! ```

mod environment;
mod hidden;
mod mounts;
mod nodes;
mod options;
mod place;
mod program;
mod root;
mod terminal;
mod user;

pub use user::give_up_capabilities;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use nix::sched::CloneFlags;
use oci_spec::runtime::{Process, Spec};
use proto_seccomp::Filter;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::launch::{Failure, Report};
use crate::syscall;
use program::Program;

/// Byte on the outcome pipe: the process is set up, and waits for its start.
pub(crate) const SET_UP: u8 = b's';
/// Byte on the outcome pipe: the process has reported a failure.
pub(crate) const FAILED: u8 = b'f';

/// Default file mode mask, the same as in other runtimes.
const UMASK: u32 = 0o022;

/// How a process enters the container.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The first process of a container. `own` are the namespaces to create.
    First { spec: Box<Spec>, own: CloneFlags },
    /// One more process. It joins the namespaces `joined` of the first process by its descriptor.
    Further { process: Box<Process>, first: OwnedFd, joined: CloneFlags },
}

/// Everything for a new process.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) entry: Entry,
    /// The agent's socket: for reports, and for the start byte.
    pub(crate) agent: UnixStream,
    /// Outcome pipe to the builder. If it ends without a byte, the process has died.
    pub(crate) outcome: File,
    /// The cgroup's file of processes, if the process was not created in the cgroup.
    pub(crate) cgroup: Option<File>,
    pub(crate) streams: [OwnedFd; 3],
    /// Socket for a terminal's master side, if the process has a terminal.
    pub(crate) console: Option<UnixStream>,
    pub(crate) filter: Option<Arc<Filter>>,
}

/// Turns this process into the container's. On failure it reports and ends.
pub(crate) fn run(mut inside: Inside) -> ! {
    let failure = match inside.live() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    // The report is lost if the agent or the builder is gone.
    let _ = failure.send(&inside.agent);
    let _ = inside.outcome.write_all(&[FAILED]);
    syscall::exit_at_once(1)
}

impl Inside {
    fn live(&mut self) -> Result<Infallible, Report> {
        let early = Report::Failed;
        rustix::process::setsid()
            .map_err(|errno| early(Failure::at("cannot make a session", &errno.into())))?;
        // Otherwise it would use its user's key ring, shared by all containers of a pod.
        syscall::new_session_keyring()
            .map_err(|error| early(Failure::at("cannot make a session key ring", &error)))?;
        if let Some(mut cgroup) = self.cgroup.take() {
            cgroup.write_all(b"0").map_err(|error| early(Failure::at("cannot join the cgroup", &error)))?;
        }
        let process = self.enter().map_err(early)?;
        let listed = process.env().as_deref().unwrap_or_default();
        let environment = environment::prepare(listed, process.user().uid());
        let arguments = process.args().clone().unwrap_or_default();
        let lend_admin = self.filter.is_some() && process.no_new_privileges() != Some(true);
        become_user(&process, lend_admin).map_err(early)?;
        // The last step before the program's files are touched. The filter is not loaded yet, so it need not
        // allow the calls of this step.
        self.wait_for_start().map_err(|error| early(Failure::at("the start was not waited for", &error)))?;
        let program = Program::find(&arguments, &environment).map_err(Report::ExecFailed)?;
        program.execute(self.filter.as_deref()).map_err(Report::ExecFailed)
    }

    /// Enters namespaces and root. Returns the specification of the process.
    fn enter(&mut self) -> Result<Process, Failure> {
        match &self.entry {
            Entry::First { spec, own } => {
                let failed =
                    |errno: nix::Error| Failure::at("cannot make the container's namespaces", &errno.into());
                nix::sched::unshare(*own).map_err(failed)?;
                let process = spec.process().clone();
                let process =
                    process.ok_or_else(|| Failure::at("no process", &ErrorKind::InvalidInput.into()))?;
                root::enter(spec)?;
                self.take_streams(true)?;
                make_directory(process.cwd())?;
                if spec.root().as_ref().and_then(oci_spec::runtime::Root::readonly) == Some(true) {
                    root::protect()?;
                }
                set_mask(&process);
                Ok(process)
            }
            Entry::Further { process, first, joined } => {
                let failed =
                    |errno: nix::Error| Failure::at("cannot join the container's namespaces", &errno.into());
                nix::sched::setns(first.as_fd(), *joined).map_err(failed)?;
                self.take_streams(false)?;
                set_mask(process);
                Ok((**process).clone())
            }
        }
    }

    fn take_streams(&self, is_first: bool) -> Result<(), Failure> {
        match &self.console {
            Some(console) => terminal::open(console, is_first),
            None => terminal::take(&self.streams),
        }
    }

    /// Reports "set up" to the builder, and waits for the agent's byte.
    fn wait_for_start(&mut self) -> io::Result<()> {
        self.outcome.write_all(&[SET_UP])?;
        let mut byte = [0];
        match (&self.agent).read(&mut byte)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Makes the working directory if it is missing, like other runtimes. Users name directories absent from
/// their images.
fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| {
        Failure::at_path(format_args!("cannot make the working directory {}", path.display()), &error)
    })
}

fn set_mask(process: &Process) {
    rustix::process::umask(Mode::from_raw_mode(process.user().umask().unwrap_or(UMASK) & 0o777));
}

/// Enters the working directory and becomes the user. If root may not enter the directory (another user's
/// volume), the user enters it.
fn become_user(process: &Process, lend_admin: bool) -> Result<(), Failure> {
    let directory = process.cwd();
    let failed = |error: &io::Error| {
        Failure::at_path(format_args!("cannot enter the working directory {}", directory.display()), error)
    };
    let entered = match rustix::process::chdir(directory) {
        Err(Errno::ACCESS | Errno::PERM) => false,
        entered => entered.map(|()| true).map_err(|errno| failed(&errno.into()))?,
    };
    user::become_user(process, lend_admin)?;
    if !entered {
        rustix::process::chdir(directory).map_err(|errno| failed(&errno.into()))?;
    }
    // A directory outside of the root has a path without a leading `/` (getcwd(2)).
    let path = rustix::process::getcwd(Vec::new()).map_err(|errno| failed(&errno.into()))?;
    match path.as_bytes().first() {
        Some(b'/') => Ok(()),
        _ => Err(failed(&io::Error::other("it is outside of the container's root"))),
    }
}

/// Duplicates the descriptor for this process.
pub(crate) fn keep(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // Above the standard streams, because they are replaced.
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}
