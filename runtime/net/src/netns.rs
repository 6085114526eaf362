//! Creates, enters and removes network namespaces. They outlive their creators. Owns their mounts and the
//! loopback link, because every pod needs it; everything else in a namespace belongs to other modules.
//!
//! A namespace belongs to a thread, so each job here gets its own thread and ends with it. No thread of the
//! daemon's runtime ever leaves the host's namespace.

use std::{
    fs::{self, File, OpenOptions},
    future::Future,
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};
use rtnetlink::{Handle, LinkUnspec};
use runtime_fail_points::{Point, pass};
use tokio::sync::oneshot;

use crate::NetError;

/// The loopback's index is 1 in every network namespace.
const LOOPBACK: u32 = 1;

/// Creates a namespace with its loopback up, held by a bind mount at `path`. Creates the parent folder if
/// absent.
///
/// # Errors
/// If `path` exists, or the caller may not create namespaces or mounts. Nothing is left behind then.
pub(crate) async fn create(path: &Path) -> Result<(), NetError> {
    let at = path.to_owned();
    on_thread(path, move || {
        with_file(&at, || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(failed("make", &at))?;
            mount_onto("/proc/thread-self/ns/net", &at)?;
            with_netlink(&at, set_loopback_up)
        })
    })
    .await
}

/// Creates a namespace without a name and with its loopback up, and runs `work` in it. It ends with its
/// descriptor. Errors name `folder`, the directory of its later name.
///
/// # Errors
/// If the caller may not create namespaces, and any error of `work`.
pub(crate) async fn unnamed<T, W, F>(folder: &Path, work: W) -> Result<(File, T), NetError>
where
    T: Send + 'static,
    W: FnOnce(Handle) -> F + Send + 'static,
    F: Future<Output = Result<T, NetError>>,
{
    let at = folder.to_owned();
    on_thread(folder, move || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(failed("make a namespace for", &at))?;
        let netns = File::open("/proc/thread-self/ns/net").map_err(failed("open a namespace for", &at))?;
        let done = with_netlink(&at, async |handle: Handle| {
            set_loopback_up(handle.clone()).await?;
            work(handle).await
        })?;
        Ok((netns, done))
    })
    .await
}

/// Gives a namespace the name `path` by a bind mount. Creates the parent folder if absent.
///
/// # Errors
/// If `path` exists, or the caller may not create mounts. Nothing is left behind then.
pub(crate) async fn name(netns: File, path: &Path) -> Result<(), NetError> {
    let at = path.to_owned();
    on_thread(path, move || {
        let source = format!("/proc/thread-self/fd/{}", netns.as_raw_fd());
        with_file(&at, || mount_onto(&source, &at))
    })
    .await
}

/// Creates the file `at` and its shared folder, then does `work`. Removes the file if `work` fails.
fn with_file(at: &Path, work: impl FnOnce() -> Result<(), NetError>) -> Result<(), NetError> {
    if let Some(folder) = at.parent() {
        pass(Point::NetnsFolder)
            .and_then(|()| fs::create_dir_all(folder))
            .map_err(failed("make the folder of", at))?;
        make_shared(folder).map_err(failed("share the folder of", at))?;
    }
    pass(Point::NetnsMake).map_err(failed("make the file of", at))?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(at)
        .map_err(failed("make the file of", at))?;
    work().inspect_err(|_| {
        // The mount may or may not be there; the file is ours.
        let _ = umount2(at, MntFlags::MNT_DETACH);
        let _ = fs::remove_file(at);
    })
}

/// Makes the folder a shared mount of its own, as `ip netns` does on first use. If `ip netns` did it later,
/// over our mounts, they would be hidden and could never be unmounted.
fn make_shared(folder: &Path) -> nix::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let share =
        || mount(None::<&str>, folder, None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>);
    match share() {
        // Not a mount yet.
        Err(Errno::EINVAL) => {
            mount(Some(folder), folder, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
            share()
        }
        other => other,
    }
}

fn mount_onto(source: &str, at: &Path) -> Result<(), NetError> {
    pass(Point::NetnsMount).map_err(failed("mount", at))?;
    mount(Some(source), at, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(failed("mount", at))
}

async fn set_loopback_up(handle: Handle) -> Result<(), NetError> {
    let up = LinkUnspec::new_with_index(LOOPBACK).up().build();
    let set = handle.link().set(up).execute().await;
    set.map_err(|source| NetError::Netlink { action: "setting lo up".into(), source })
}

/// Runs `work` on a thread inside the namespace, with a netlink connection of that namespace.
///
/// # Errors
/// If the namespace is not there or cannot be entered, and any error of `work`.
pub(crate) async fn within<T, W, F>(path: &Path, work: W) -> Result<T, NetError>
where
    T: Send + 'static,
    W: FnOnce(Handle) -> F + Send + 'static,
    F: Future<Output = Result<T, NetError>>,
{
    let at = path.to_owned();
    on_thread(path, move || {
        let netns = File::open(&at).map_err(failed("open", &at))?;
        setns(netns, CloneFlags::CLONE_NEWNET).map_err(failed("enter", &at))?;
        with_netlink(&at, work)
    })
    .await
}

/// Unmounts and removes `path`. Succeeds if it is absent or not mounted.
pub(crate) async fn remove(path: &Path) -> Result<(), NetError> {
    let at = path.to_owned();
    on_thread(path, move || {
        pass(Point::NetnsUnmount).map_err(failed("unmount", &at))?;
        match umount2(&at, MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(failed("unmount", &at)(error)),
        }
        match pass(Point::NetnsRemove).and_then(|()| fs::remove_file(&at)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &at)(error)),
            _ => Ok(()),
        }
    })
    .await
}

/// Returns true if a namespace is mounted at `path`. A plain file does not count: it is the leftover of an
/// interrupted creation.
pub(crate) fn exists(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::NSFS_MAGIC)
}

/// Gives `work` a netlink connection in the calling thread's namespace.
fn with_netlink<T, W, F>(at: &Path, work: W) -> Result<T, NetError>
where
    W: FnOnce(Handle) -> F,
    F: Future<Output = Result<T, NetError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed("start a netlink runtime in", at))?;
    runtime.block_on(async {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(failed("open a netlink socket in", at))?;
        let pump = tokio::spawn(connection);
        let result = work(handle).await;
        pump.abort();
        result
    })
}

async fn on_thread<T, W>(path: &Path, work: W) -> Result<T, NetError>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T, NetError> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    thread::Builder::new()
        .name("netns".into())
        .spawn(move || answer.send(work()))
        .map_err(failed("start a thread for", path))?;
    let ended = |_| failed("finish the work in", path)(io::Error::other("its thread panicked"));
    answered.await.map_err(ended)?
}

fn failed<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> NetError {
    let path = path.to_owned();
    move |error| NetError::Netns { action, path, source: error.into() }
}
