//! Supplementary groups of the pod's programs, on files of the host. A request names its caller's user and group alone, while a server of
//! files decides by all of them: Kubernetes gives a pod the group of its volumes (`fsGroup`) in this way.
//!
//! The groups are those of all programs of the pod, whichever has sent the request. The guest's kernel, which knows each program's own,
//! has decided before.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::virtio::fs::credentials::set_groups;

/// Versions of lists, of all shares of the process. 0 is of the list that a thread begins with.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Version of the list that this thread has.
    static PRESENT: Cell<u64> = const { Cell::new(0) };
}

/// The groups that threads of a share have, once they look.
#[derive(Debug, Default)]
pub(super) struct Groups {
    list: Mutex<Vec<u32>>,
    version: AtomicU64,
}

impl Groups {
    pub(super) fn set(&self, groups: &[u32]) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        *list = groups.to_vec();
        self.version.store(VERSIONS.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Gives the calling thread the groups, unless it has them.
    pub(super) fn join(&self) -> io::Result<()> {
        if self.version.load(Ordering::Acquire) == PRESENT.get() {
            return Ok(());
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version.load(Ordering::Acquire);
        // A share that knows of none leaves a thread's groups alone.
        if version != 0 {
            set_groups(&list)?;
            PRESENT.set(version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_thread() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap().trim().to_owned()
    }

    #[test]
    fn each_thread_has_the_groups_of_the_latest_list_from_its_next_request_on() {
        // Only root may have other groups.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (groups, other) = (Groups::default(), Groups::default());
        let before = of_this_thread();
        groups.join().unwrap();
        assert_eq!(of_this_thread(), before);
        groups.set(&[3000, 7]);
        groups.join().unwrap();
        assert_eq!(of_this_thread(), "7 3000");
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                groups.join().unwrap();
                of_this_thread()
            });
            assert_eq!(seen.join().unwrap(), "7 3000");
        });
        groups.set(&[8]);
        other.set(&[9]);
        for (of, has) in [(&groups, "8"), (&other, "9"), (&groups, "8")] {
            of.join().unwrap();
            assert_eq!(of_this_thread(), has);
        }
        groups.set(&[]);
        groups.join().unwrap();
        assert_eq!(of_this_thread(), "");
    }
}
