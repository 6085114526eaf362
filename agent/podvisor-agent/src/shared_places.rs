//! Places in the pod's shared directory with a file system of their own, mounted in the agent's namespace for
//! as long as a container uses them. A container's namespace is a copy of it. So containers with the same
//! place have the same files, and not two of each: sockets connect, and mapped pages are shared. The kernel
//! would mount such a place anew for each namespace that looks at it (`fuse_dentry_automount`,
//! fs/fuse/dir.c).

use std::collections::{BTreeSet, HashMap};
use std::io;
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

/// The places, with the containers that use them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedPlaces(Arc<Mutex<HashMap<PathBuf, BTreeSet<String>>>>);

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
            self.users().entry(place.clone()).or_default().insert(container.to_owned());
        }
        let this = self.clone();
        let mounting = move || places.iter().try_for_each(|place| this.mount_one(place));
        work.run(MOUNT, ANSWER, mounting).await?
    }

    /// Opening a directory mounts its file system. A file has none.
    fn mount_one(&self, place: &Path) -> Result<(), PlaceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(CWD, place, flags, Mode::empty()) {
            Ok(_) | Err(rustix::io::Errno::NOTDIR) => {}
            Err(errno) => return Err(PlaceError::Open { path: place.to_owned(), source: errno.into() }),
        }
        // Its container may be gone by now, if the host has taken long to answer.
        self.unmount_unused([place.to_owned()]);
        Ok(())
    }

    /// Unmounts the places that the container was the last to use. A volume that hangs on the host stays.
    pub(crate) async fn leave(&self, work: &HostWork, container: &str) {
        let left = {
            let mut users = self.users();
            let mut left = Vec::new();
            users.retain(|place, containers| {
                if containers.remove(container) && containers.is_empty() {
                    left.push(place.clone());
                }
                !containers.is_empty()
            });
            left
        };
        if left.is_empty() {
            return;
        }
        let this = self.clone();
        if let Err(error) = work.run(UNMOUNT, ANSWER, move || this.unmount_unused(left)).await {
            tracing::warn!(%error, container, "volumes of a container stay mounted");
        }
    }

    fn unmount_unused(&self, places: impl IntoIterator<Item = PathBuf>) {
        for place in places {
            if self.users().contains_key(&place) {
                continue;
            }
            match umount2(&place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                // No mount, as a file, or already removed by the host.
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(error) => tracing::warn!(%error, place = %place.display(), "a volume stays mounted"),
            }
        }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<PathBuf, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let used = |places: &SharedPlaces| places.users().len();
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
