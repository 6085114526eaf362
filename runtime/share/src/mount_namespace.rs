//! A VMM's mount namespace: where the binds are, and nowhere else. The node's own table never has them, so that
//! nothing of the host stays busy for them, and they end with the VMM at the latest.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, fstat};

use crate::directory::open_directory;

/// The mount namespace of a process whose root is a pod's shared directory.
#[derive(Debug)]
pub struct MountNamespace {
    namespace: OwnedFd,
}

impl MountNamespace {
    /// That of the process with this id.
    ///
    /// # Errors
    /// The process has ended, or the caller may not look at it.
    pub fn of(pid: u32) -> io::Result<MountNamespace> {
        Ok(MountNamespace { namespace: File::open(format!("/proc/{pid}/ns/mnt"))?.into() })
    }

    /// Runs `work` in the namespace with its root, on a thread that ends with it. `shared` is the same
    /// directory as the caller sees it: another root is refused, since it would be somebody else's.
    pub(crate) fn within(
        &self,
        shared: &OwnedFd,
        work: impl FnOnce(OwnedFd) -> rustix::io::Result<()> + Send,
    ) -> io::Result<()> {
        let enter = || {
            // Root and working directory are the whole process's, until a thread has its own.
            unshare(CloneFlags::CLONE_FS)?;
            setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
            let root = open_directory(CWD, "/")?;
            let (inside, outside) = (fstat(&root)?, fstat(shared)?);
            if (inside.st_dev, inside.st_ino) != (outside.st_dev, outside.st_ino) {
                return Err(io::Error::other("the VMM's root is not the pod's shared directory"));
            }
            Ok(work(root)?)
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("share".into()).spawn_scoped(scope, enter)?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
        })
    }
}
