//! The mount namespace of a VMM's share, the only place with the binds. The node's own mount table never has
//! them. So they keep nothing of the host busy, and they end with the share at the latest.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, fstat};

use crate::directory::open_directory;

/// The mount namespace of a process. Its root is a pod's shared directory.
#[derive(Debug)]
pub struct MountNamespace {
    namespace: OwnedFd,
}

impl MountNamespace {
    /// Opens the mount namespace of the process with this id.
    ///
    /// # Errors
    /// The process has ended, or the caller may not access it.
    pub fn of(pid: u32) -> io::Result<MountNamespace> {
        Ok(MountNamespace { namespace: File::open(format!("/proc/{pid}/ns/mnt"))?.into() })
    }

    /// Runs `work` on its own thread in the namespace, with the namespace's root. The root must be `shared`,
    /// opened by the caller. Any other root belongs to another process and is refused.
    pub(crate) fn within(
        &self,
        shared: &OwnedFd,
        work: impl FnOnce(OwnedFd) -> rustix::io::Result<()> + Send,
    ) -> io::Result<()> {
        let enter = || {
            // Root and working directory are shared by the whole process until a thread gets its own.
            unshare(CloneFlags::CLONE_FS)?;
            setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
            let root = open_directory(CWD, "/")?;
            let (inside, outside) = (fstat(&root)?, fstat(shared)?);
            if (inside.st_dev, inside.st_ino) != (outside.st_dev, outside.st_ino) {
                return Err(io::Error::other("the share's root is not the pod's shared directory"));
            }
            Ok(work(root)?)
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("share".into()).spawn_scoped(scope, enter)?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
        })
    }
}
