//! The re-executed agent: it makes one process, a container's first or a further one, and exits. The builder
//! has one thread and lives for some milliseconds. It makes the process as its own sibling, in the
//! container's cgroup. The process is therefore the agent's child from the first moment. [`crate::inside`]
//! has the new process's own steps.
//!
//! This module holds no state and must never write to the agent's console. Every result goes back as a report
//! ([`crate::launch`]).

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, PosixRlimitType, Spec};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};

use crate::cgroup::{self, Cgroup};
use crate::exec::Exec;
use crate::inside::{self, Entry, FAILED, Inside, SET_UP};
use crate::launch::{self, Failure, Launch, LaunchKind, ProcessLimit, Report};
use crate::syscall;

/// Result of the builder's process.
enum Outcome {
    Made(i32),
    /// The process has already reported its failure.
    Reported,
}

/// Runs the builder with the launch socket as standard input. Returns the process's exit code.
pub fn run() -> i32 {
    let Ok(socket) = inside::keep(io::stdin().as_fd()).map(UnixStream::from) else { return 1 };
    let report = match build(&socket) {
        Ok(Outcome::Made(pid)) => Report::Ready { pid },
        Ok(Outcome::Reported) => return 1,
        Err(failure) => Report::Failed(failure),
    };
    // If the agent is gone, the report has no reader.
    let sent = report.send(&socket);
    i32::from(sent.is_err() || matches!(report, Report::Failed(_)))
}

fn build(socket: &UnixStream) -> Result<Outcome, Failure> {
    let failed = |what: &'static str| move |error: io::Error| Failure::at(what, &error);
    let read = "cannot read the launch";
    let streams = launch::receive_fds(socket).map_err(failed(read))?.unwrap_or_default();
    let streams = streams.iter().map(|stream| inside::keep(stream.as_fd())).collect::<io::Result<Vec<_>>>();
    let streams = <[OwnedFd; 3]>::try_from(streams.map_err(failed(read))?)
        .map_err(|_| failed(read)(ErrorKind::UnexpectedEof.into()))?;
    // The agent sends nothing after the launch until the process exists. So reading ahead consumes no other
    // message.
    let launch = Launch::read(BufReader::new(socket)).map_err(failed(read))?;
    let agent = socket.try_clone().map_err(failed(read))?;
    let console = launch.console_socket.as_ref().map(UnixStream::connect).transpose();
    let console = console.map_err(failed("cannot reach the agent's socket for the terminal"))?;
    for limit in &launch.limits {
        set_limit(limit).map_err(|error| Failure::at(format!("cannot set {}", limit.resource), &error))?;
    }
    // Processes of the joined namespaces must not access this one meanwhile.
    nix::sys::prctl::set_dumpable(false).map_err(|errno| failed("cannot hide the builder")(errno.into()))?;
    let (outcome, reported) = io::pipe().map_err(failed("cannot make a pipe"))?;
    let (outcome, reported) = (File::from(OwnedFd::from(outcome)), File::from(OwnedFd::from(reported)));
    let filter = launch.filter;
    let inside = |entry, cgroup| Inside { entry, agent, outcome: reported, cgroup, streams, console, filter };
    match launch.kind {
        LaunchKind::Create(spec) => first(spec, outcome, inside),
        LaunchKind::Exec(exec) => further(*exec, outcome, inside),
    }
}

/// Makes a container's first process. It waits for its start.
fn first(
    spec: Box<Spec>,
    outcome: File,
    inside: impl FnOnce(Entry, Option<File>) -> Inside,
) -> Result<Outcome, Failure> {
    let invalid = || Failure::at("the specification is not complete", &ErrorKind::InvalidInput.into());
    let linux = spec.linux().as_ref().ok_or_else(invalid)?;
    let score = spec.process().as_ref().and_then(oci_spec::runtime::Process::oom_score_adj);
    set_score(score)?;
    let cgroup = make_cgroup(linux.cgroups_path().as_deref().ok_or_else(invalid)?)?;
    let namespaces = linux.namespaces().as_deref().unwrap_or_default();
    let (mut own, joined) = split(namespaces);
    // The cgroup's files belong to root of the agent's user namespace. No user of another user namespace is
    // that root.
    let in_user_namespace = joined.iter().any(|one| one.typ() == LinuxNamespaceType::User);
    let processes = in_user_namespace.then(|| File::options().write(true).open(cgroup.join("cgroup.procs")));
    let processes = processes.transpose().map_err(|error| cgroup_failed(&error))?;
    let directory = File::open(&cgroup).map_err(|error| cgroup_failed(&error))?;
    join(&joined).map_err(|error| Failure::at("cannot join the pod's namespaces", &error))?;
    // A process cannot change its own PID namespace later.
    let pid = own & CloneFlags::CLONE_NEWPID;
    own.remove(CloneFlags::CLONE_NEWPID);
    let into = (!in_user_namespace).then_some(directory);
    let inside = inside(Entry::First { spec, own }, processes);
    match made(pid, into.as_ref(), inside)? {
        made if answered(outcome)? == Some(SET_UP) => Ok(Outcome::Made(made)),
        _ => Ok(Outcome::Reported),
    }
}

/// Makes one more process of a container. It waits for its start, too.
fn further(
    exec: Exec,
    outcome: File,
    inside: impl FnOnce(Entry, Option<File>) -> Inside,
) -> Result<Outcome, Failure> {
    set_score(exec.process.oom_score_adj())?;
    let cgroup = Cgroup::new(&cgroup::to_join(&exec.cgroup, exec.first).to_string_lossy());
    let directory = File::open(cgroup.directory()).map_err(|error| cgroup_failed(&error))?;
    let joining = |error: io::Error| Failure::at("cannot join the container", &error);
    let first = Pid::from_raw(exec.first).ok_or_else(|| joining(ErrorKind::InvalidInput.into()))?;
    let first =
        rustix::process::pidfd_open(first, PidfdFlags::empty()).map_err(|errno| joining(errno.into()))?;
    let mut joined = exec.namespaces.iter().fold(CloneFlags::empty(), |all, &one| all | flag(one));
    if joined.contains(CloneFlags::CLONE_NEWPID) {
        nix::sched::setns(&first, CloneFlags::CLONE_NEWPID).map_err(|errno| joining(errno.into()))?;
        joined.remove(CloneFlags::CLONE_NEWPID);
    }
    let inside = inside(Entry::Further { process: Box::new(exec.process), first, joined }, None);
    let pid = made(CloneFlags::empty(), Some(&directory), inside)?;
    match answered(outcome)? {
        // If it died, perhaps with its container, its exit code says so.
        None | Some(SET_UP) => Ok(Outcome::Made(pid)),
        Some(_) => Ok(Outcome::Reported),
    }
}

/// Makes the process. Returns its pid in the builder, and never returns in the new process.
fn made(flags: CloneFlags, cgroup: Option<&File>, inside: Inside) -> Result<i32, Failure> {
    let flags = u64::from(flags.bits().cast_unsigned());
    let cloned = syscall::clone_sibling(flags, cgroup.map(AsFd::as_fd));
    match cloned.map_err(|error| Failure::at(unmade(&error), &error))? {
        Some(pid) => Ok(pid),
        None => inside::run(inside),
    }
}

/// The step for this error of clone3(2). The kernel has the same error for no memory and for a joined PID
/// namespace without its first process.
fn unmade(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => "cannot make the process: its PID namespace has ended, or there is no memory",
        _ => "cannot make the process",
    }
}

/// Waits for the process's answer, one byte. Returns `None` if the process has died.
fn answered(mut outcome: File) -> Result<Option<u8>, Failure> {
    let mut byte = [0];
    let failed = |error| Failure::at("cannot read the outcome", &error);
    let answer = (outcome.read(&mut byte).map_err(failed)? == 1).then_some(byte[0]);
    debug_assert!(matches!(answer, None | Some(SET_UP | FAILED)));
    Ok(answer)
}

fn cgroup_failed(error: &io::Error) -> Failure {
    Failure::at("cannot make the container's cgroup", error)
}

/// Makes the cgroup with this path below the mount, and returns its directory.
fn make_cgroup(path: &Path) -> Result<PathBuf, Failure> {
    let cgroup = Cgroup::new(&path.to_string_lossy());
    match fs::create_dir(cgroup.directory()) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(cgroup_failed(&error)),
        _ => Ok(cgroup.directory().to_owned()),
    }
}

/// Sets the builder's own score; the process inherits it. Setting it later is impossible, because the file
/// belongs to root once dumping is off.
fn set_score(score: Option<i32>) -> Result<(), Failure> {
    let set = score.map(|score| fs::write("/proc/self/oom_score_adj", score.to_string())).transpose();
    set.map(drop).map_err(|error| Failure::at("cannot set oom_score_adj", &error))
}

/// Sets this process's own limit; the container's process inherits it. Inside a user namespace the
/// namespace's root could only lower limits.
fn set_limit(limit: &ProcessLimit) -> io::Result<()> {
    let resource = match limit.resource {
        PosixRlimitType::RlimitCpu => Resource::Cpu,
        PosixRlimitType::RlimitFsize => Resource::Fsize,
        PosixRlimitType::RlimitData => Resource::Data,
        PosixRlimitType::RlimitStack => Resource::Stack,
        PosixRlimitType::RlimitCore => Resource::Core,
        PosixRlimitType::RlimitRss => Resource::Rss,
        PosixRlimitType::RlimitNproc => Resource::Nproc,
        PosixRlimitType::RlimitNofile => Resource::Nofile,
        PosixRlimitType::RlimitMemlock => Resource::Memlock,
        PosixRlimitType::RlimitAs => Resource::As,
        PosixRlimitType::RlimitLocks => Resource::Locks,
        PosixRlimitType::RlimitSigpending => Resource::Sigpending,
        PosixRlimitType::RlimitMsgqueue => Resource::Msgqueue,
        PosixRlimitType::RlimitNice => Resource::Nice,
        PosixRlimitType::RlimitRtprio => Resource::Rtprio,
        PosixRlimitType::RlimitRttime => Resource::Rttime,
    };
    let (current, maximum) = (Some(limit.soft), Some(limit.hard));
    Ok(rustix::process::setrlimit(resource, Rlimit { current, maximum })?)
}

/// Splits the namespaces into new ones for the container and existing ones to join.
fn split(namespaces: &[LinuxNamespace]) -> (CloneFlags, Vec<&LinuxNamespace>) {
    let joined: Vec<_> = namespaces.iter().filter(|one| one.path().is_some()).collect();
    let own = namespaces.iter().filter(|one| one.path().is_none());
    (own.fold(CloneFlags::empty(), |all, one| all | flag(one.typ())), joined)
}

/// Joins these namespaces, the user namespace last, because joining it drops the rights over the others.
fn join(namespaces: &[&LinuxNamespace]) -> io::Result<()> {
    let is_user = |one: &LinuxNamespace| one.typ() == LinuxNamespaceType::User;
    let (user, others): (Vec<&LinuxNamespace>, Vec<_>) = namespaces.iter().partition(|one| is_user(one));
    for namespace in others.into_iter().chain(user) {
        let path = namespace.path().as_deref().unwrap_or(Path::new(""));
        nix::sched::setns(File::open(path)?, flag(namespace.typ()))?;
        if is_user(namespace) {
            let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
            nix::unistd::setresgid(gid, gid, gid)?;
            nix::unistd::setresuid(uid, uid, uid)?;
        }
    }
    Ok(())
}

fn flag(namespace: LinuxNamespaceType) -> CloneFlags {
    match namespace {
        LinuxNamespaceType::Mount => CloneFlags::CLONE_NEWNS,
        LinuxNamespaceType::Cgroup => CloneFlags::CLONE_NEWCGROUP,
        LinuxNamespaceType::Uts => CloneFlags::CLONE_NEWUTS,
        LinuxNamespaceType::Ipc => CloneFlags::CLONE_NEWIPC,
        LinuxNamespaceType::User => CloneFlags::CLONE_NEWUSER,
        LinuxNamespaceType::Pid => CloneFlags::CLONE_NEWPID,
        LinuxNamespaceType::Network => CloneFlags::CLONE_NEWNET,
        // clone(2) has no free flag for it, but unshare(2) does.
        LinuxNamespaceType::Time => CloneFlags::from_bits_retain(libc::CLONE_NEWTIME),
    }
}
