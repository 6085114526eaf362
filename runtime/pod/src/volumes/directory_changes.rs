//! Changes of directories of the node, for their followers: one inotify instance for all directories, with
//! one watch for each. The kernel reports a rename in a volume's directory, such as of `..data` in a
//! published volume, or a new entry in a directory of sockets.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::reactor;

/// Most watches at once: several times the number of volumes of a full node's pods. The kernel's own limit
/// for each user (`fs.inotify.max_user_watches`) may be lower.
const WATCHES_MAX: usize = 16_384;

/// Bytes of events read at once.
const EVENT_BYTES: usize = 4096;

/// Pause after a failure of the kernel.
const PAUSE: Duration = Duration::from_secs(1);

/// The changes. The instance is made with the first watch.
#[derive(Debug)]
pub(crate) struct DirectoryChanges {
    what: WatchFlags,
    instance: Mutex<Option<Arc<Instance>>>,
}

/// One inotify instance, and the followers of each watch: several may follow one directory.
#[derive(Debug)]
struct Instance {
    events: AsyncFd<OwnedFd>,
    followers: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
}

/// A watch. It ends with the value.
#[derive(Debug)]
pub(crate) struct Watch {
    instance: Arc<Instance>,
    number: i32,
    follower: Arc<Notify>,
}

impl Default for DirectoryChanges {
    /// Follows renames into the directory.
    fn default() -> DirectoryChanges {
        DirectoryChanges::of(WatchFlags::MOVED_TO)
    }
}

impl DirectoryChanges {
    /// Follows new names in a directory, and the end of the directory itself.
    pub(crate) fn arrivals() -> DirectoryChanges {
        DirectoryChanges::of(
            WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF,
        )
    }

    fn of(what: WatchFlags) -> DirectoryChanges {
        DirectoryChanges {
            what: what | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW,
            instance: Mutex::default(),
        }
    }

    /// Makes the instance, in the context of the async threads.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn prepare(&self) -> std::io::Result<()> {
        self.instance().map(drop)
    }

    /// Notifies `follower` of changes of the directory, until the watch is dropped.
    ///
    /// # Errors
    /// There are too many watches, or the kernel refused. The first call makes the instance, unless
    /// [`Self::prepare`] has.
    pub(crate) fn watch(&self, directory: &Path, follower: Arc<Notify>) -> std::io::Result<Watch> {
        let instance = self.instance()?;
        let mut followers = instance.followers();
        if followers.len() >= WATCHES_MAX {
            let text = format!("{WATCHES_MAX} directories are watched already");
            return Err(std::io::Error::new(std::io::ErrorKind::QuotaExceeded, text));
        }
        let number = inotify::add_watch(instance.fd(), directory, self.what)?;
        followers.entry(number).or_default().push(follower.clone());
        drop(followers);
        Ok(Watch { instance, number, follower })
    }

    fn instance(&self) -> std::io::Result<Arc<Instance>> {
        let mut known = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = reactor::watch(events, Interest::READABLE)?;
        let made = Arc::new(Instance { events, followers: Mutex::default() });
        let instance = made.clone();
        tokio::spawn(async move {
            // For as long as the daemon serves.
            loop {
                let Err(error) = instance.deliver_all().await;
                tracing::warn!(%error, "changes of directories were not followed for a moment");
                tokio::time::sleep(PAUSE).await;
                instance.followers().values().flatten().for_each(|follower| follower.notify_one());
            }
        });
        *known = Some(made.clone());
        Ok(made)
    }
}

impl Instance {
    fn fd(&self) -> BorrowedFd<'_> {
        self.events.get_ref().as_fd()
    }

    fn followers(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Notify>>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn deliver_all(&self) -> std::io::Result<std::convert::Infallible> {
        loop {
            self.deliver().await?;
        }
    }

    /// Waits for events, and notifies the affected followers.
    async fn deliver(&self) -> std::io::Result<()> {
        let mut ready = self.events.readable().await?;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(self.fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.notify(event.wd(), event.events()),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        ready.clear_ready();
        Ok(())
    }

    fn notify(&self, number: i32, events: ReadFlags) {
        let mut followers = self.followers();
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            followers.values().flatten().for_each(|follower| follower.notify_one());
        }
        for follower in followers.get(&number).into_iter().flatten() {
            follower.notify_one();
        }
        if events.contains(ReadFlags::IGNORED) {
            // The directory is gone, and the watch with it.
            followers.remove(&number);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut followers = self.instance.followers();
        // The kernel gives one number for one directory to all its watchers, and may have ended the watch.
        let Some(of_directory) = followers.get_mut(&self.number) else { return };
        let Some(place) = of_directory.iter().position(|follower| Arc::ptr_eq(follower, &self.follower))
        else {
            return;
        };
        of_directory.swap_remove(place);
        if of_directory.is_empty() {
            followers.remove(&self.number);
            let _ = inotify::remove_watch(self.instance.fd(), self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_rename_in_a_directory_notifies_its_follower_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let changes = DirectoryChanges::default();
        let at = |name: &str| dir.path().join(name);
        let (mine, others) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        fs::create_dir(at("mine")).unwrap();
        fs::create_dir(at("others")).unwrap();
        let watch = changes.watch(&at("mine"), mine.clone()).unwrap();
        let _other = changes.watch(&at("others"), others.clone()).unwrap();
        fs::write(at("mine/new"), "").unwrap();
        fs::rename(at("mine/new"), at("mine/data")).unwrap();
        mine.notified().await;
        assert!(futures::FutureExt::now_or_never(others.notified()).is_none());
        drop(watch);
        fs::write(at("mine/new"), "").unwrap();
        fs::rename(at("mine/new"), at("mine/data")).unwrap();
        fs::write(at("others/new"), "").unwrap();
        fs::rename(at("others/new"), at("others/data")).unwrap();
        others.notified().await;
        assert!(futures::FutureExt::now_or_never(mine.notified()).is_none());
    }

    #[tokio::test]
    async fn all_followers_of_one_directory_are_notified_of_what_comes_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let changes = DirectoryChanges::arrivals();
        let (one, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let watch = changes.watch(dir.path(), one.clone()).unwrap();
        let _other = changes.watch(dir.path(), other.clone()).unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        one.notified().await;
        other.notified().await;
        drop(watch);
        fs::write(dir.path().join("b"), "").unwrap();
        other.notified().await;
        assert!(futures::FutureExt::now_or_never(one.notified()).is_none());
    }

    #[tokio::test]
    async fn a_directory_that_is_gone_is_watched_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let changes = DirectoryChanges::default();
        let follower = Arc::new(Notify::new());
        let place = dir.path().join("gone");
        fs::create_dir(&place).unwrap();
        let watch = changes.watch(&place, follower.clone()).unwrap();
        fs::remove_dir(&place).unwrap();
        follower.notified().await;
        assert!(watch.instance.followers().is_empty());
        drop(watch);
        changes.watch(&place, follower).unwrap_err();
    }
}
