//! Network namespaces that wait for pods: made, with their loopback up, and surveyed. Owns which of them a pod may still get. Each
//! is held by a descriptor alone, so that none outlives the process.

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

/// A directory with one directory for each module of the kernel (sysfs-module of Documentation/ABI).
const MODULES: &str = "/sys/module";

/// A namespace without a name.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) netns: File,
    /// The settings that it was made with, before any plugin.
    pub(crate) fresh: Survey,
    pub(crate) files: SysctlFiles,
    /// Links of [`MODULES`] before that: a module that was loaded since has its sysctls in the namespace, and they are not in the survey.
    modules: u64,
}

/// The namespaces that wait.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    waiting: Mutex<Vec<Spare>>,
    /// Files of pods' namespaces that nobody reads any more.
    read: Mutex<Vec<SysctlFiles>>,
}

impl Spare {
    /// Makes one. Errors name `folder`, where it may get a name.
    pub(crate) async fn make(folder: &Path) -> Result<Spare, NetError> {
        let modules = modules();
        let taking = |handle| Survey::take(handle, SysctlFiles::default());
        let (netns, (fresh, files)) = netns::unnamed(folder, taking).await?;
        Ok(Spare { netns, fresh, files, modules })
    }
}

impl Spares {
    /// Takes a namespace for a pod, the one that is read the fastest; those that are no good any more are ended.
    pub(crate) fn take(&self) -> Option<Spare> {
        let mut waiting = lock(&self.waiting);
        if !waiting.is_empty() {
            let now = modules();
            waiting.retain(|spare| spare.modules == now);
        }
        let (best, _) = waiting.iter().enumerate().max_by_key(|(_, spare)| spare.files.count())?;
        Some(waiting.swap_remove(best))
    }

    /// Takes files that nobody reads any more, and that are closed later, since a pod starts now.
    pub(crate) fn put_away(&self, files: SysctlFiles) {
        lock(&self.read).push(files);
    }

    /// Closes the files that were put away.
    pub(crate) fn close_files(&self) {
        lock(&self.read).clear();
    }

    pub(crate) fn keep(&self, spare: Spare) {
        lock(&self.waiting).push(spare);
    }

    /// Ends those that are too many.
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

/// Links of the directory of modules, of which each loaded one adds one. A kernel without modules has always as many.
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
