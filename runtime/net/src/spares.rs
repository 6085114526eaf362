//! Network namespaces created in advance: with loopback up, and surveyed. Owns the choice of usable ones.
//! Each is held only by a descriptor, so none outlives the process.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    NetError, netns,
    settings::{Survey, SysctlFiles},
};

/// A directory with one subdirectory per kernel module (sysfs-module of Documentation/ABI).
const MODULES: &str = "/sys/module";

/// A namespace without a name.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) netns: File,
    /// The namespace's settings before any plugin.
    pub(crate) fresh: Survey,
    pub(crate) files: SysctlFiles,
    /// Link count of [`MODULES`] before the survey. A module loaded since then adds sysctls to the namespace,
    /// and the survey lacks them.
    modules: u64,
}

/// The spare namespaces.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    waiting: Mutex<Vec<Spare>>,
    /// Sysctl files of pods' namespaces no longer needed.
    read: Mutex<Vec<SysctlFiles>>,
}

impl Spare {
    /// Creates a spare. Errors name `folder`, the directory of its later name.
    pub(crate) async fn make(folder: &Path) -> Result<Spare, NetError> {
        let modules = modules();
        let taking = |handle| Survey::take(handle, SysctlFiles::default());
        let (netns, (fresh, files)) = netns::unnamed(folder, taking).await?;
        Ok(Spare { netns, fresh, files, modules })
    }
}

impl Spares {
    /// Takes the spare fastest to survey for a pod, and drops unusable ones.
    pub(crate) fn take(&self) -> Option<Spare> {
        let mut waiting = lock(&self.waiting);
        if !waiting.is_empty() {
            let now = modules();
            waiting.retain(|spare| spare.modules == now);
        }
        let (best, _) = waiting.iter().enumerate().max_by_key(|(_, spare)| spare.files.count())?;
        Some(waiting.swap_remove(best))
    }

    /// Keeps unneeded files to be closed later, because a pod is starting now.
    pub(crate) fn put_away(&self, files: SysctlFiles) {
        lock(&self.read).push(files);
    }

    /// Closes these files.
    pub(crate) fn close_files(&self) {
        lock(&self.read).clear();
    }

    pub(crate) fn keep(&self, spare: Spare) {
        lock(&self.waiting).push(spare);
    }

    /// Drops surplus spares.
    pub(crate) fn truncate(&self, most: usize) {
        lock(&self.waiting).truncate(most);
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.waiting).len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Link count of the modules directory. Each loaded module adds one link. On a kernel without modules it
/// never changes.
fn modules() -> u64 {
    fs::metadata(MODULES).map_or(0, |modules| modules.nlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(modules: u64) -> Spare {
        Spare {
            netns: File::open("/dev/null").unwrap(),
            fresh: Survey::default(),
            files: SysctlFiles::default(),
            modules,
        }
    }

    #[test]
    fn a_namespace_from_before_a_module_was_loaded_is_for_no_pod() {
        let spares = Spares::default();
        assert!(spares.take().is_none());
        for modules in [modules(), modules() + 1] {
            spares.keep(spare(modules));
        }
        assert_eq!(spares.take().unwrap().modules, modules());
        assert_eq!(spares.count(), 0);
    }

    #[test]
    fn namespaces_beyond_the_most_are_ended() {
        let spares = Spares::default();
        (0..3).for_each(|_| spares.keep(spare(modules())));
        spares.truncate(1);
        assert_eq!(spares.count(), 1);
    }
}
