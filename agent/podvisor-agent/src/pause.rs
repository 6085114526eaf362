//! The pod-wide PID namespace. A process holds it: it is PID 1 there, collects ended processes, and does
//! nothing else. It is the agent re-executed twice: once to make the namespace, once inside it. The guest
//! ends with that process ([`crate::pause_end`]).

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use proto_agent::guest_path::POD_PID_NAMESPACE;
use rustix::process::WaitOptions;

/// First argument: make a namespace, start [`PAUSE_ARGUMENT`] in it, print its pid, and end.
pub(crate) const NAMESPACE_ARGUMENT: &str = "pod-pid-namespace";
/// First argument: run as PID 1 of a namespace.
pub(crate) const PAUSE_ARGUMENT: &str = "pause";

/// Directory that the empty root is mounted on, in a mount namespace of its own.
const EMPTY: &str = "/run";

/// The agent's own binary, even if its path has changed.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Why there is no pod-wide namespace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PauseError {
    #[error("cannot start the process of the pod's PID namespace")]
    Start(#[source] std::io::Error),
    #[error("the process of the pod's PID namespace did not start")]
    NotStarted,
    #[error("cannot keep the pod's PID namespace at {POD_PID_NAMESPACE}")]
    Keep(#[source] std::io::Error),
}

/// Makes the namespace and binds it at [`POD_PID_NAMESPACE`]. Returns its first process. Takes a millisecond
/// or two.
pub(crate) fn keep_namespace() -> Result<i32, PauseError> {
    let mut helper = Command::new(SELF)
        .arg(NAMESPACE_ARGUMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(PauseError::Start)?;
    let mut pid = String::new();
    if let Some(mut output) = helper.stdout.take() {
        output.read_to_string(&mut pid).map_err(PauseError::Start)?;
    }
    let pid: i32 = pid.trim().parse().map_err(|_| PauseError::NotStarted)?;
    std::fs::write(POD_PID_NAMESPACE, "").map_err(PauseError::Keep)?;
    let namespace = format!("/proc/{pid}/ns/pid");
    nix::mount::mount(
        Some(Path::new(&namespace)),
        POD_PID_NAMESPACE,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .map_err(|errno| PauseError::Keep(errno.into()))?;
    Ok(pid)
}

/// Runs the process for making the namespace. Its child starts inside, and becomes the agent's when this
/// process ends.
pub(crate) fn make_namespace() -> i32 {
    if let Err(error) = protect_from_oom_killer() {
        eprintln!("podvisor-agent: cannot protect the pause process from the OOM killer: {error}");
        return 1;
    }
    if let Err(errno) = nix::sched::unshare(CloneFlags::CLONE_NEWPID) {
        eprintln!("podvisor-agent: cannot make a PID namespace: {errno}");
        return 1;
    }
    let child = Command::new(SELF)
        .arg0("pause")
        .arg(PAUSE_ARGUMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match child {
        Ok(child) => i32::from(writeln!(std::io::stdout(), "{}", child.id()).is_err()),
        Err(error) => {
            eprintln!("podvisor-agent: cannot start the pause process: {error}");
            1
        }
    }
}

/// Has the kernel kill anything else first, for this process and its children. Without PID 1 the namespace is
/// dead, and so are all containers. The score is that of other runtimes' pause processes (kubelet,
/// `qos/policy.go`).
pub(crate) fn protect_from_oom_killer() -> std::io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-998")
}

/// Leaves the guest's files and every right behind. A container with CAP_SYS_PTRACE reaches this process as
/// /proc/1: it finds an empty root there, and nothing to gain.
fn isolate() -> std::io::Result<()> {
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    let mount = |source, at, kind, flags, options| {
        nix::mount::mount::<str, str, str, str>(source, at, kind, flags, options)
    };
    mount(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("nothing"), EMPTY, Some("tmpfs"), flags, Some("size=4k,nr_inodes=1,mode=0555"))?;
    std::env::set_current_dir(EMPTY)?;
    // The old root comes to lie over the new one, and goes (pivot_root(2)).
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")?;
    agent_container::give_up_capabilities()?;
    // Standard error was the guest's console.
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

/// Runs PID 1 of the namespace. It ends only with the agent, and so with the VM.
pub(crate) fn run() -> i32 {
    if nix::sys::prctl::set_dumpable(false).is_err() {
        return 1;
    }
    if let Err(error) = isolate() {
        eprintln!("podvisor-agent: cannot isolate the pause process: {error}");
        return 1;
    }
    // The name shown by ps. A failure does no harm.
    let _ = nix::sys::prctl::set_name(c"pause");
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    if children.thread_block().is_err() {
        return 1;
    }
    loop {
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if children.wait().is_err() {
            return 1;
        }
    }
}
