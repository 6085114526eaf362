//! The pod's user namespace, and the namespaces owned by it. A container's root there may change the pod's
//! network, host name and IPC, but nothing else of the guest.
//!
//! ```text
//!  agent                                 helper (the agent re-executed)            pause
//!    │ start ─────────────────────────────▶│ unshare user
//!    │◀──────────────── "user" ────────────│
//!    │ /proc/<helper>/{uid,gid}_map        │
//!    │ ─────────────── newline ───────────▶│ become root there, unshare the rest
//!    │◀──────────────── pid ───────────────│ start ───────────────────────────────▶│ PID 1
//!    │ keeps its namespaces as files       └ ends
//! ```
//!
//! The agent itself then lives in the pod's network, IPC and host name namespaces, and configures, dials and
//! starts there.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use proto_agent::agent::UserNamespace as UserNamespaceSpec;
use proto_agent::guest_path::POD_PID_NAMESPACE;

use crate::pause::{self, PAUSE_ARGUMENT, SELF};

/// First argument: make the namespaces, start [`PAUSE_ARGUMENT`] in them, print its pid, and end.
pub(crate) const ARGUMENT: &str = "pod-user-namespace";

/// Path of the bound namespace, for containers to join.
pub(crate) const PATH: &str = "/run/podvisor/pod/user";

/// Number of the kernel's ids: the largest plus one. -1 is excluded, because it stands for no id.
const IDS: u64 = u32::MAX as u64;

/// Why there is no user namespace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserNamespaceError {
    #[error("the mapping of {length} ids to {host} and on is not possible")]
    Mapping { host: u32, length: u32 },
    #[error("cannot start the process of the pod's namespaces")]
    Start(#[source] io::Error),
    #[error("the process of the pod's namespaces did not start")]
    NotStarted,
    #[error("cannot map the ids of the pod's user namespace")]
    Map(#[source] io::Error),
    #[error("cannot keep the pod's namespace at {path}")]
    Keep { path: &'static str, source: io::Error },
    #[error("cannot enter the pod's namespaces")]
    Enter(#[source] io::Error),
}

/// Consecutive ids of the namespace, from 0 on, as consecutive ids of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdRange {
    guest_first: u32,
    length: u32,
}

impl IdRange {
    fn new(guest_first: u32, length: u32) -> Result<IdRange, UserNamespaceError> {
        if length == 0 || u64::from(guest_first) + u64::from(length) > IDS {
            return Err(UserNamespaceError::Mapping { host: guest_first, length });
        }
        Ok(IdRange { guest_first, length })
    }

    /// Returns the guest's id of a namespace's id, if it is mapped.
    pub(crate) fn guest_id(self, id: u32) -> Option<u32> {
        (id < self.length).then(|| self.guest_first + id)
    }
}

/// The pod's user namespace and the namespaces owned by it, held open by their files.
#[derive(Debug)]
pub(crate) struct UserNamespace {
    pub(crate) uids: IdRange,
    pub(crate) gids: IdRange,
    /// The first process of the PID namespace, in the guest's own PID namespace.
    pub(crate) pause: i32,
    user: File,
    network: File,
    ipc: File,
    host_name: File,
}

impl UserNamespace {
    /// Makes the namespaces. Takes some milliseconds.
    pub(crate) fn make(
        spec: &UserNamespaceSpec,
        shared_pids: bool,
    ) -> Result<UserNamespace, UserNamespaceError> {
        let uids = IdRange::new(spec.uid_host, spec.uid_length)?;
        let gids = IdRange::new(spec.gid_host, spec.gid_length)?;
        let mut helper = Command::new(SELF)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(UserNamespaceError::Start)?;
        let (Some(mut input), Some(output)) = (helper.stdin.take(), helper.stdout.take()) else {
            return Err(UserNamespaceError::NotStarted);
        };
        let mut lines = BufReader::new(output).lines();
        let mut line = || lines.next().and_then(Result::ok).ok_or(UserNamespaceError::NotStarted);
        line()?;
        for (file, ids) in [("uid_map", uids), ("gid_map", gids)] {
            let map = format!("0 {} {}", ids.guest_first, ids.length);
            std::fs::write(format!("/proc/{}/{file}", helper.id()), map).map_err(UserNamespaceError::Map)?;
        }
        writeln!(input).map_err(UserNamespaceError::Start)?;
        let pid: i32 = line()?.parse().map_err(|_| UserNamespaceError::NotStarted)?;
        keep(pid, "user", PATH)?;
        if shared_pids {
            keep(pid, "pid", POD_PID_NAMESPACE)?;
        }
        let open = |kind| File::open(format!("/proc/{pid}/ns/{kind}")).map_err(UserNamespaceError::Start);
        let (network, ipc, host_name) = (open("net")?, open("ipc")?, open("uts")?);
        Ok(UserNamespace { uids, gids, pause: pid, user: open("user")?, network, ipc, host_name })
    }

    /// Path for containers to join the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(PATH)
    }

    /// The namespace itself, for mounts with mapped owners.
    pub(crate) fn user(&self) -> BorrowedFd<'_> {
        self.user.as_fd()
    }

    /// The pod's network namespace, for moving links there.
    pub(crate) fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// The guest's user and group ids of the namespace's root.
    pub(crate) fn root(&self) -> (u32, u32) {
        (self.uids.guest_first, self.gids.guest_first)
    }

    /// Moves this thread, and all its later threads and processes, to the pod's network, IPC and host name.
    pub(crate) fn enter(&self) -> Result<(), UserNamespaceError> {
        for (namespace, kind) in [
            (&self.network, CloneFlags::CLONE_NEWNET),
            (&self.ipc, CloneFlags::CLONE_NEWIPC),
            (&self.host_name, CloneFlags::CLONE_NEWUTS),
        ] {
            nix::sched::setns(namespace, kind).map_err(|errno| UserNamespaceError::Enter(errno.into()))?;
        }
        Ok(())
    }
}

fn keep(pid: i32, kind: &str, path: &'static str) -> Result<(), UserNamespaceError> {
    let failed = |source| UserNamespaceError::Keep { path, source };
    std::fs::write(path, "").map_err(failed)?;
    let namespace = format!("/proc/{pid}/ns/{kind}");
    nix::mount::mount(Some(Path::new(&namespace)), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| failed(errno.into()))
}

/// Runs the process for making the namespaces.
pub(crate) fn run() -> i32 {
    match make_namespaces() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("podvisor-agent: cannot make the pod's namespaces: {error}");
            1
        }
    }
}

fn make_namespaces() -> io::Result<()> {
    // Below, the right to lower it is gone.
    pause::protect_from_oom_killer()?;
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
    let mut output = io::stdout();
    writeln!(output, "user")?;
    let mut mapped = String::new();
    if io::stdin().lock().read_line(&mut mapped)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    nix::unistd::setgid(Gid::from_raw(0))?;
    nix::unistd::setuid(Uid::from_raw(0))?;
    nix::sched::unshare(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )?;
    let pause = Command::new(SELF)
        .arg0("pause")
        .arg(PAUSE_ARGUMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    writeln!(output, "{}", pause.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_beyond_the_mapping_has_none_in_the_guest() {
        let ids = IdRange::new(1000, 100).unwrap();
        assert_eq!((ids.guest_id(0), ids.guest_id(99), ids.guest_id(100)), (Some(1000), Some(1099), None));
    }

    #[test]
    fn a_mapping_that_the_kernel_would_not_take_is_refused() {
        assert!(IdRange::new(1000, 0).is_err());
        assert!(IdRange::new(u32::MAX - 1, 2).is_err());
        IdRange::new(0, u32::MAX).unwrap();
    }
}
