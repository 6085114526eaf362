//! RemoveContainer and Shutdown: end the processes, and take down everything made by creation. Users of a
//! resource are taken down before the resource. Every step may be repeated after a failure.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::MntFlags;
use tokio::time::{Instant, sleep};

use crate::containers::{Container, ContainerError, Phase};
use crate::memory_protection;
use crate::pause::SELF;
use crate::pod::Pod;
use crate::remove_tree;

/// Timeout for the end of killed processes, and of threads. One may be in an uninterruptible wait for a disk.
const GONE: Duration = Duration::from_secs(10);
/// Pause between two reads of a cgroup while its processes end.
const PAUSE: Duration = Duration::from_millis(2);
/// The same at the pod's end, for all together. The host waits 10 s for everything (`runtime/pod`, stop).
const GONE_AT_SHUTDOWN: Duration = Duration::from_secs(3);
/// Timeout for removing a writable layer.
const SCRATCH_REMOVAL: Duration = Duration::from_secs(60);

/// Removes the container. An unknown one is no error.
pub(crate) async fn remove(pod: &Pod, id: &str) -> Result<(), ContainerError> {
    match pod.containers.get(id) {
        Ok(container) => {
            if matches!(&*container.phase(), Phase::Creating) {
                return Err(ContainerError::Phase { id: id.to_owned(), phase: "being created" });
            }
            tear_down(pod, &container).await
        }
        // Its volumes may exist before it does.
        Err(ContainerError::NoContainer(_)) => {
            pod.published_volumes.remove_of(id).map_err(ContainerError::volumes_of(id))
        }
        Err(error) => Err(error),
    }
}

/// Takes down all of a container in any phase, and forgets it.
pub(super) async fn tear_down(pod: &Pod, container: &Arc<Container>) -> Result<(), ContainerError> {
    let _one_at_a_time = container.removal.lock().await;
    if !pod.containers.get(container.id()).is_ok_and(|known| Arc::ptr_eq(&known, container)) {
        return Ok(());
    }
    {
        let mut phase = container.phase();
        let first = phase.first().cloned();
        *phase = Phase::Removing { first };
    }
    kill_and_wait(container, Instant::now() + GONE).await.map_err(container.io("end the processes"))?;
    pod.host_sockets.remove_of(container.id()).map_err(container.io("remove the sockets"))?;
    let made = tokio::time::timeout(GONE, container.layers.lock()).await;
    let _made = made
        .map_err(|_| io::ErrorKind::TimedOut.into())
        .map_err(container.io("end the making of the layers"))?;
    unmount(&container.rootfs()).map_err(container.io("unmount the root"))?;
    pod.shared_places.leave(&pod.shared.work, container.id()).await;
    container.cgroup().remove().map_err(container.io("remove the cgroup"))?;
    memory_protection::renew(pod);
    remove_directory(&container.directory()).map_err(container.io("remove the container's directory"))?;
    remove_scratch(pod, container).await.map_err(container.io("remove the writable layer"))?;
    loop {
        let volume = container.volumes().last().copied();
        let Some(slot) = volume else { break };
        pod.images.release(slot).await?;
        container.volumes().pop();
    }
    loop {
        let disk = container.disks().last().copied();
        let Some(slot) = disk else { break };
        pod.disks.release(slot).await?;
        container.disks().pop();
    }
    pod.published_volumes.remove_of(container.id()).map_err(ContainerError::volumes_of(container.id()))?;
    pod.images.release(container.image_slot).await?;
    pod.containers.forget(container.id());
    Ok(())
}

/// Ends every container's processes and unmounts the pod's volumes. All their data is then written. The
/// scratch disk is lost with the VM, so nothing of it has to be.
pub(crate) async fn shut_down(pod: &Pod) -> Result<(), ContainerError> {
    let containers = pod.containers.all();
    let mut outcome = Ok(());
    for container in &containers {
        outcome = outcome.and(container.cgroup().kill().map_err(container.io("end the processes")));
    }
    // A process may be stuck, on a file server that is gone. The data of all others is written all the same.
    let deadline = Instant::now() + GONE_AT_SHUTDOWN;
    for container in &containers {
        let gone = kill_and_wait(container, deadline).await;
        outcome = outcome.and(gone.map_err(container.io("end the processes")));
    }
    // Otherwise writes to the host's files through mapped memory would be lost with the VM.
    tokio::join!(pod.shared.sync(), pod.disk_volumes.unmount());
    outcome
}

/// Kills the cgroup's processes and waits until none is left.
async fn kill_and_wait(container: &Container, deadline: Instant) -> io::Result<()> {
    loop {
        container.cgroup().kill()?;
        if !container.cgroup().populated()? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(PAUSE).await;
    }
}

/// Unmounts `path`. It is no error if it is no mount. A mount in use disappears with its last user.
fn unmount(path: &Path) -> io::Result<()> {
    match nix::mount::umount2(path, MntFlags::empty()) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(Errno::EBUSY) => Ok(nix::mount::umount2(path, MntFlags::MNT_DETACH)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes a directory written only by the agent.
fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the container's writable layer, in a separate process ([`crate::remove_tree`]).
async fn remove_scratch(pod: &Pod, container: &Container) -> io::Result<()> {
    let path = container.scratch();
    if !path.exists() {
        return Ok(());
    }
    let launch = pod.reaper.launch();
    let remover = Command::new(SELF).arg(remove_tree::ARGUMENT).arg(path).stdin(Stdio::null()).spawn()?;
    let pid = i32::try_from(remover.id()).map_err(io::Error::other)?;
    let exit = pod.reaper.watch(&launch, pid);
    drop(launch);
    match tokio::time::timeout(SCRATCH_REMOVAL, exit).await {
        Ok(Ok(exit)) if exit.code == 0 => Ok(()),
        Ok(_) => Err(io::Error::other("the removal failed; the console has the reason")),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
