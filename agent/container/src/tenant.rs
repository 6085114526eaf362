//! Builds one more process in a running container, which libcontainer calls a tenant.
//!
//! libcontainer's own builder of tenants reads and checks the container's whole specification again for each, and
//! joins every namespace of the container but a user namespace: it would let root of the guest in. This module calls
//! the code below that builder, with every namespace, and with what the agent has kept ([`crate::exec`]).

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use libcgroups::common::CgroupConfig;
use libcontainer::error::LibcontainerError;
use libcontainer::notify_socket::{NotifyListener, NotifySocket};
use libcontainer::oci_spec::OciSpecError;
use libcontainer::oci_spec::runtime::{
    LinuxBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, RootBuilder, Spec, SpecBuilder,
};
use libcontainer::process::args::{ContainerArgs, ContainerType};
use libcontainer::process::container_main_process::container_main_process;
use libcontainer::syscall::syscall::SyscallType;
use nix::fcntl::OFlag;

use crate::cgroup;
use crate::exec::Exec;
use crate::executor::ContainerExecutor;
use crate::launch::Launch;

/// Starts the process, which runs when this returns. The executor reports its own failures.
pub(crate) fn build(
    launch: &Launch,
    exec: &Exec,
    socket: &Arc<UnixStream>,
    [stdin, stdout, stderr]: &[OwnedFd; 3],
) -> Result<i32, LibcontainerError> {
    let directory = launch.state_root.join(&launch.container_id);
    // libcontainer does not put the container's filter on further processes.
    let seccomp = exec.seccomp.clone().map(Arc::new);
    let executor = ContainerExecutor { socket: Arc::clone(socket), seccomp, held: false };
    // Names that no other process of the container has.
    let own = std::process::id();
    let notify = directory.join(format!("tenant-notify-{own}.sock"));
    let console = launch.console_socket.as_ref();
    let console = console
        .map(|socket| {
            libcontainer::tty::setup_console_socket(&directory, socket, &format!("tenant-tty-{own}.sock"))
        })
        .transpose()?;
    let (outcome, released) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(other)?;
    let notify_listener = NotifyListener::new(&notify)?;
    // The process inherits this. Later the file could not be written: it is root's once dumping is off.
    if let Some(score) = exec.process.oom_score_adj() {
        fs::write("/proc/self/oom_score_adj", score.to_string()).map_err(LibcontainerError::OtherIO)?;
    }
    // The processes of the namespaces to join must not reach into this one meanwhile.
    nix::sys::prctl::set_dumpable(false).map_err(other)?;
    let cgroup = cgroup::to_join(&exec.cgroup, exec.first);
    let arguments = ContainerArgs {
        container_type: ContainerType::TenantContainer { exec_notify_fd: released.as_raw_fd() },
        syscall: SyscallType::default(),
        spec: Rc::new(specification(exec, &cgroup)?),
        // The process is in its root as soon as it is in the mount namespace.
        rootfs: PathBuf::new(),
        console_socket: console.as_ref().map(AsRawFd::as_raw_fd),
        notify_listener,
        preserve_fds: 0,
        container: None,
        user_ns_config: None,
        cgroup_config: CgroupConfig {
            cgroup_path: cgroup,
            systemd_cgroup: false,
            container_name: launch.container_id.clone(),
        },
        detached: true,
        executor: Box::new(executor),
        no_pivot: false,
        stdin: Some(stdin.as_raw_fd()),
        stdout: Some(stdout.as_raw_fd()),
        stderr: Some(stderr.as_raw_fd()),
        as_sibling: false,
        pid_file: None,
    };
    let pid = container_main_process(&arguments)?;
    NotifySocket::new(notify).notify_container_start()?;
    // The process holds the other end until exec, and writes there why exec failed.
    drop(released);
    let mut reason = String::new();
    File::from(outcome).read_to_string(&mut reason).map_err(LibcontainerError::OtherIO)?;
    if reason.is_empty() { Ok(pid.as_raw()) } else { Err(LibcontainerError::Other(reason)) }
}

/// Converts an error of another version of nix than libcontainer's.
fn other(errno: nix::Error) -> LibcontainerError {
    LibcontainerError::OtherIO(errno.into())
}

/// The part of a specification that libcontainer needs for a tenant: the process, and what the process joins.
fn specification(exec: &Exec, cgroup: &Path) -> Result<Spec, OciSpecError> {
    let namespaces = exec.namespaces.iter().map(|&typ| namespace(typ, exec.first));
    let linux = LinuxBuilder::default()
        .namespaces(namespaces.collect::<Result<Vec<_>, _>>()?)
        .cgroups_path(cgroup)
        .build()?;
    SpecBuilder::default()
        .process(exec.process.clone())
        .linux(linux)
        .root(RootBuilder::default().path("/").build()?)
        .build()
}

/// A namespace of the container's first process, to join.
fn namespace(typ: LinuxNamespaceType, first: i32) -> Result<LinuxNamespace, OciSpecError> {
    let name = match typ {
        LinuxNamespaceType::Mount => "mnt",
        LinuxNamespaceType::Cgroup => "cgroup",
        LinuxNamespaceType::Uts => "uts",
        LinuxNamespaceType::Ipc => "ipc",
        LinuxNamespaceType::User => "user",
        LinuxNamespaceType::Pid => "pid",
        LinuxNamespaceType::Network => "net",
        LinuxNamespaceType::Time => "time",
    };
    let path = format!("/proc/{first}/ns/{name}");
    LinuxNamespaceBuilder::default().typ(typ).path(path).build()
}
