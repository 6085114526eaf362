//! Starts a VMM's process with its control socket as standard input. Taking over a descriptor with any other
//! number needs unsafe code.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use proto_vmm::VolumeCache;
use runtime_blocking::in_place;
use runtime_fail_points::{Point, pass, pass_async};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::process::{Child, Command};

use crate::VmError;
use crate::process::has_ended;
use crate::share_process::shares_of;

/// Connections waiting for the VMM: the daemon's, and one of a replacement daemon.
const BACKLOG: i32 = 4;

/// A VMM to start.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// Path of `podvisor-vmm`.
    pub binary: &'a Path,
    /// The pod's existing run directory; `control.sock` and `vsock.sock` are made there.
    pub dir: &'a Path,
    /// The guest's shared directory, for virtio-fs. The process starts in it and makes it its root. If it is
    /// a shared mount, later mounts below it are visible too. Not `/`.
    pub shared: &'a Path,
    /// The guest's cache for files there.
    pub volume_cache: VolumeCache,
    /// Directories of the cgroups to enter, one in each hierarchy: each has a `cgroup.procs`.
    pub cgroups: &'a [PathBuf],
    /// The pod's id, for log lines.
    pub id: &'a str,
    /// The VMM's standard error.
    pub log: File,
    /// The VMM's standard output, for a copy of the guest's console: an empty file in memory. `None` for no
    /// copy.
    pub console: Option<File>,
}

/// The control socket's name in the pod's run directory.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";
/// The vsock device's socket in the pod's run directory.
pub(crate) const VSOCK_SOCKET: &str = "vsock.sock";

/// Starts the process in its cgroup. It waits on its control socket, without a VM.
pub(crate) async fn start(spawn: Spawn<'_>) -> Result<Child, VmError> {
    let listener = listen(&spawn.dir.join(CONTROL_SOCKET))?;
    let start = |source| VmError::Start { binary: spawn.binary.to_owned(), source };
    pass_async(Point::VmmSpawn).await.map_err(start)?;
    let mut command = Command::new(spawn.binary);
    command
        .arg(spawn.volume_cache.as_str())
        .env_clear()
        .current_dir(spawn.shared)
        .stdin(Stdio::from(listener))
        .stdout(spawn.console.map_or_else(Stdio::null, Stdio::from))
        .stderr(Stdio::from(spawn.log));
    let mut child = in_place(|| command.spawn()).map_err(start)?;
    let pid = child.id().ok_or_else(|| start(std::io::Error::other("it ended at once")))?;
    for cgroup in spawn.cgroups {
        if let Err(error) = enter_cgroup(cgroup, pid) {
            // The process has done nothing yet; tokio reaps it once its handle is gone.
            let _ = child.start_kill();
            return Err(error);
        }
    }
    tracing::debug!(pod = spawn.id, pid, "a VMM was started");
    Ok(child)
}

/// Moves the VMM and its share. A new VMM allocates almost nothing before it is asked to boot.
pub(crate) fn enter_cgroup(cgroup: &Path, pid: u32) -> Result<(), VmError> {
    let path = cgroup.join("cgroup.procs");
    let failed = |source| VmError::Cgroup { path: path.clone(), source };
    let mut procs =
        pass(Point::VmmCgroup).and_then(|()| File::options().write(true).open(&path)).map_err(failed)?;
    procs.write_all(pid.to_string().as_bytes()).map_err(failed)?;
    // After the VMM: a share that it starts from here on is in the cgroup already.
    for share in shares_of(pid) {
        match procs.write_all(share.to_string().as_bytes()) {
            Err(error) if !has_ended(&error) => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the listening control socket.
fn listen(path: &Path) -> Result<OwnedFd, VmError> {
    let make = || -> std::io::Result<OwnedFd> {
        remove_stale(path)?;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    make().map_err(|source| VmError::Bind { path: path.to_owned(), source })
}

/// Makes the vsock device's listening socket.
pub(crate) fn listen_vsock(path: &Path) -> Result<UnixListener, VmError> {
    remove_stale(path)
        .and_then(|()| UnixListener::bind(path))
        .map_err(|source| VmError::Bind { path: path.to_owned(), source })
}

fn remove_stale(path: &Path) -> std::io::Result<()> {
    match pass(Point::VmmSocket).and_then(|()| std::fs::remove_file(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
