//! Notices changes in a directory (inotify(7)), without their details: the caller inspects the directory
//! itself. A node may have no inotify instance left (`fs.inotify.max_user_instances` is 128). Then no change
//! is ever noticed.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// Bytes of events discarded with one call.
const EVENTS_BYTES: usize = 4096;

/// A watched directory.
#[derive(Debug)]
pub(crate) struct Notify {
    /// An inotify instance is no pipe, but is read like one.
    events: Receiver,
}

impl Notify {
    /// Watches the directory now at the path.
    ///
    /// # Errors
    /// The directory does not exist, or the kernel has no instance or watch left.
    pub(crate) fn on(directory: &Path) -> io::Result<Notify> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, directory, what)?;
        Ok(Notify { events: Receiver::from_owned_fd_unchecked(inotify)? })
    }

    /// Resolves after a change since the last call. All changes until now count as one.
    pub(crate) async fn changed(&self) {
        loop {
            let taken = match self.events.readable().await {
                Ok(()) => self.take_all(),
                Err(error) => Err(error),
            };
            match taken {
                Ok(true) => return,
                Ok(false) => {}
                // A failing instance counts as none. The caller still polls.
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// Reads all events. Returns true if there were any.
    fn take_all(&self) -> io::Result<bool> {
        let mut any = false;
        loop {
            let mut bytes = [0; EVENTS_BYTES];
            match self.events.try_read(&mut bytes) {
                Ok(0) => return Ok(any),
                Ok(_) => any = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn files_that_come_and_go_are_noticed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.sock");
        let notify = Notify::on(dir.path()).unwrap();
        let nothing =
            async || tokio::time::timeout(Duration::from_millis(20), notify.changed()).await.is_err();
        assert!(nothing().await);
        std::fs::write(&path, "").unwrap();
        notify.changed().await;
        assert!(nothing().await);
        std::fs::remove_file(&path).unwrap();
        notify.changed().await;
        assert!(nothing().await);
        std::fs::remove_dir(dir.path()).unwrap();
        notify.changed().await;
    }

    #[tokio::test]
    async fn what_is_no_directory_cannot_be_watched() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(Notify::on(&file).is_err());
        assert!(Notify::on(&dir.path().join("missing")).is_err());
    }
}
