//! One more process in a container of a user namespace.
//!
//! libcontainer's own builder of such processes joins every namespace of the container but that one, and
//! would let root of the guest in. This hands what it would hand to the same code, with all of them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use libcgroups::common::CgroupConfig;
use libcontainer::container::Container;
use libcontainer::error::LibcontainerError;
use libcontainer::notify_socket::{NotifyListener, NotifySocket};
use libcontainer::oci_spec::OciSpecError;
use libcontainer::oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, Process, Spec,
};
use libcontainer::process::args::{ContainerArgs, ContainerType};
use libcontainer::process::container_main_process::container_main_process;
use libcontainer::syscall::syscall::SyscallType;
use nix::fcntl::OFlag;

use crate::executor::ContainerExecutor;
use crate::launch::Launch;

/// Whether the container of this specification is in a user namespace of the pod's.
pub(crate) fn has_user_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    namespaces.into_iter().flatten().any(|namespace| namespace.typ() == LinuxNamespaceType::User)
}

/// Starts the process. It runs when this returns; what its executor could not do is reported by that.
pub(crate) fn build(
    launch: &Launch,
    mut spec: Spec,
    process: Process,
    executor: ContainerExecutor,
    [stdin, stdout, stderr]: &[OwnedFd; 3],
) -> Result<i32, LibcontainerError> {
    let directory = launch.state_root.join(&launch.container_id);
    let container = Container::load(directory.clone())?;
    let first = container.pid().ok_or_else(|| LibcontainerError::Other("the container has ended".into()))?;
    let linux = spec.linux().as_ref().map(|linux| joined(linux, first.as_raw()));
    let linux = linux.ok_or_else(|| LibcontainerError::Other("no linux part".into()))??;
    let rootfs = spec.root().as_ref().map_or_else(PathBuf::new, |root| root.path().clone());
    let cgroup_path = linux.cgroups_path().clone().unwrap_or_default();
    spec.set_process(Some(process)).set_linux(Some(linux));

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
    // The processes of the namespaces to join must not reach into this one meanwhile.
    nix::sys::prctl::set_dumpable(false).map_err(other)?;
    let arguments = ContainerArgs {
        container_type: ContainerType::TenantContainer { exec_notify_fd: released.as_raw_fd() },
        syscall: SyscallType::default(),
        spec: Rc::new(spec),
        rootfs,
        console_socket: console.as_ref().map(AsRawFd::as_raw_fd),
        notify_listener,
        preserve_fds: 0,
        container: None,
        user_ns_config: None,
        cgroup_config: CgroupConfig {
            cgroup_path,
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
    // The process has the other end until it becomes its program, and says there why it could not.
    drop(released);
    let mut reason = String::new();
    File::from(outcome).read_to_string(&mut reason).map_err(LibcontainerError::OtherIO)?;
    if reason.is_empty() { Ok(pid.as_raw()) } else { Err(LibcontainerError::Other(reason)) }
}

/// Errors of another version of nix than libcontainer's.
fn other(errno: nix::Error) -> LibcontainerError {
    LibcontainerError::OtherIO(errno.into())
}

/// The part of the specification that says which namespaces: those of the container's first process.
fn joined(linux: &Linux, first: i32) -> Result<Linux, OciSpecError> {
    let join = |namespace: &LinuxNamespace| {
        let name = match namespace.typ() {
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
        LinuxNamespaceBuilder::default().typ(namespace.typ()).path(path).build()
    };
    let namespaces: Vec<LinuxNamespace> =
        linux.namespaces().iter().flatten().map(join).collect::<Result<_, _>>()?;
    let builder = LinuxBuilder::default().namespaces(namespaces);
    builder.cgroups_path(linux.cgroups_path().clone().unwrap_or_default()).build()
}
