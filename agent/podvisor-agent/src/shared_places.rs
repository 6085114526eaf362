//! Places in the pod's shared directory with a file system of their own, mounted in the agent's namespace for
//! as long as a container uses them. A container's namespace is a copy of it. So containers with the same
//! place have the same files, and not two of each: sockets connect, and mapped pages are shared. The kernel
//! would mount such a place anew for each namespace that looks at it (`fuse_dentry_automount`,
//! fs/fuse/dir.c).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use oci_spec::runtime::Spec;
use proto_agent::guest_path;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::host_work::{HostWork, HostWorkError};
use crate::shared::ANSWER;

/// The step of [`SharedPlaces::mount`] in error messages.
const MOUNT: &str = "mount the container's volumes";

/// The step of [`SharedPlaces::leave`] in log lines.
const UNMOUNT: &str = "unmount volumes without a container";

/// The places by their paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedPlaces(Arc<Mutex<HashMap<PathBuf, Place>>>);

/// A place, with the containers that use it.
#[derive(Debug, Default)]
struct Place {
    containers: BTreeSet<String>,
    /// The root of its file system, to unmount it without a question to the host. `None` for a file.
    root: Option<OwnedFd>,
}

/// Why a place could not be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error(transparent)]
    HostWork(#[from] HostWorkError),
}

impl SharedPlaces {
    /// Mounts the places of the container's specification. [`SharedPlaces::leave`] is called later in any
    /// case.
    pub(crate) async fn mount(
        &self,
        work: &HostWork,
        container: &str,
        spec: &Spec,
    ) -> Result<(), PlaceError> {
        let places = places(spec);
        for place in &places {
            self.all().entry(place.clone()).or_default().containers.insert(container.to_owned());
        }
        let this = self.clone();
        let mounting = move || places.iter().try_for_each(|place| this.mount_one(place));
        work.run(MOUNT, ANSWER, mounting).await?
    }

    /// Opening a directory mounts its file system. A file has none.
    fn mount_one(&self, path: &Path) -> Result<(), PlaceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = match openat(CWD, path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(rustix::io::Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(PlaceError::Open { path: path.to_owned(), source: errno.into() }),
        };
        match self.all().get_mut(path) {
            Some(place) => {
                place.root.get_or_insert(root);
            }
            // Its container is gone by now: the host has taken long to answer.
            None => unmount(&root),
        }
        Ok(())
    }

    /// Unmounts the places that the container was the last to use. A volume that hangs on the host holds up
    /// no removal for longer than [`ANSWER`].
    pub(crate) async fn leave(&self, work: &HostWork, container: &str) {
        let unused: Vec<OwnedFd> = {
            let mut all = self.all();
            for place in all.values_mut() {
                place.containers.remove(container);
            }
            all.extract_if(|_, place| place.containers.is_empty())
                .filter_map(|(_, place)| place.root)
                .collect()
        };
        if unused.is_empty() {
            return;
        }
        let unmounting = move || unused.iter().for_each(unmount);
        if let Err(error) = work.run(UNMOUNT, ANSWER, unmounting).await {
            tracing::warn!(%error, container, "volumes of a container stay mounted");
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<PathBuf, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unmounts the file system with this root. It ends with its last user, at the latest with the descriptor.
fn unmount(root: &OwnedFd) {
    match umount2(format!("/proc/self/fd/{}", root.as_raw_fd()).as_str(), MntFlags::MNT_DETACH) {
        // No mount of its own, or already unmounted.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => tracing::warn!(%error, "a volume stays mounted"),
    }
}

/// The sources of mounts in the pod's shared directory.
fn places(spec: &Spec) -> Vec<PathBuf> {
    let sources = spec.mounts().iter().flatten().filter_map(|mount| mount.source().clone());
    let here: BTreeSet<PathBuf> = sources.filter(|source| source.starts_with(guest_path::SHARED)).collect();
    here.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{MountBuilder, SpecBuilder};

    use super::*;

    fn spec(sources: &[&str]) -> Spec {
        let mounts = sources
            .iter()
            .map(|source| MountBuilder::default().destination("/data").source(*source).build().unwrap());
        SpecBuilder::default().mounts(mounts.collect::<Vec<_>>()).build().unwrap()
    }

    #[test]
    fn places_are_the_mounts_of_the_shared_directory() {
        let shared = |name: &str| format!("{}/{name}", guest_path::SHARED);
        let (first, second) = (shared("c1/0"), shared("c2/3"));
        let spec = spec(&["proc", &second, "/etc/hosts", &first, &second]);
        assert_eq!(places(&spec), [PathBuf::from(first), PathBuf::from(second)]);
    }

    #[tokio::test]
    async fn a_place_is_kept_until_its_last_container_leaves() {
        let (places, work) = (SharedPlaces::default(), HostWork::default());
        let used = |places: &SharedPlaces| places.all().len();
        let place = format!("{}/c1/0", guest_path::SHARED);
        // Nothing is mounted in a test, so the places cannot be opened; their users count all the same.
        for container in ["c1", "c2"] {
            places.mount(&work, container, &spec(&[&place])).await.unwrap_err();
        }
        places.leave(&work, "c3").await;
        places.leave(&work, "c1").await;
        assert_eq!(used(&places), 1);
        places.leave(&work, "c2").await;
        assert_eq!(used(&places), 0);
    }
}
