//! Binds the host paths of a container's mounts into the pod's shared directory, and removes the binds. The
//! VMM learns the groups for its access there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use runtime_spec::{ContainerPlan, ContainerSpec, Mount, User, share_name};

use super::Driver;
use crate::backend::{ContainerDir, SoughtPlace};
use crate::blocking::within;
use crate::container::{GUEST_PATHS, mounts};
use crate::error::PodError;
use crate::host::shared_dir;
use crate::live::Live;
use crate::record::{ContainerRecord, GuestVolume, HostSocket, JoinedMount, SharedPlace};

/// How long binding or unbinding a container's host paths may take. A path on a hanging file system (an
/// unreachable NFS server) keeps a thread, not the pod.
const BOUND_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// Finds places of other containers for the container's mounts, and changes its plan. Containers with the
    /// same volume then have the same files in the guest, and not two copies of each.
    pub(super) async fn join_places(
        &self,
        spec: &ContainerSpec,
        kept: &[GuestVolume],
        sockets: &[HostSocket],
        plan: &mut ContainerPlan,
    ) -> Result<Vec<JoinedMount>, PodError> {
        let mut places: Vec<SharedPlace> = Vec::new();
        // Programs that have ended share nothing. A container started again has the volume as it is now.
        for place in self.containers.open_records().flat_map(mounts::places) {
            if places.iter().all(|known| known.key() != place.key()) {
                places.push(place);
            }
        }
        // Readers see the maps of writers, and not only each other's.
        places.sort_by_key(|place| place.mount.readonly);
        let sought = |(number, mount): (usize, &Mount)| {
            let usable = |place: &SharedPlace| Some((place.clone(), mounts::may_use(mount, &place.mount)?));
            let candidates: Vec<_> = places.iter().filter_map(usable).collect();
            let source = PathBuf::from(&mount.host_path);
            (!candidates.is_empty()).then_some(SoughtPlace { number, source, candidates })
        };
        let sought: Vec<_> = mounts::of_host(spec, kept, sockets).filter_map(sought).collect();
        if sought.is_empty() {
            return Ok(Vec::new());
        }
        const DOING: &str = "mounts: looking for places of other containers";
        let finding = async {
            let found = self.node.backends.shares.find_same(self.place(&plan.container_id), sought).await;
            found.map_err(|error| error.during(DOING))
        };
        let joined = within(BOUND_WITHIN, DOING, finding).await?;
        for JoinedMount { number, place } in &joined {
            plan.take_from(spec, *number, place.key(), !place.mount.readonly, &GUEST_PATHS);
        }
        Ok(joined)
    }

    /// Binds the container's host paths: all or none.
    pub(super) async fn bind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let binds = mounts::binds(record);
        if binds.is_empty() {
            return Ok(());
        }
        let binding = async {
            let bound = self.node.backends.shares.bind(self.place(&record.id), binds).await;
            bound.map_err(|error| error.during("mounts"))
        };
        within(BOUND_WITHIN, "mounts", binding).await
    }

    /// Has the VMM access files of the node with the groups of the pod's programs, if the container mounts
    /// any.
    pub(super) async fn share_groups(
        &mut self,
        live: &Live,
        record: &ContainerRecord,
        user: &User,
    ) -> Result<(), PodError> {
        if !mounts::has_any(record) || user.groups.iter().all(|group| self.shared_groups.contains(group)) {
            return Ok(());
        }
        let groups: BTreeSet<u32> = self.containers.groups().chain(user.groups.iter().copied()).collect();
        let sending = live.vm.share_groups(&groups);
        sending.await.map_err(|error| error.during("sending the VMM the container's groups"))?;
        self.shared_groups = groups;
        Ok(())
    }

    /// Removes the container's binds, and those of earlier containers that it was the last to use. Binds in
    /// use by others stay. The call is idempotent.
    pub(super) async fn unbind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let unused = unused_places(record, self.containers.records());
        const DOING: &str = "taking the mounts away";
        for (container, numbers) in unused {
            let place = ContainerDir { container, ..self.place(&record.id) };
            let unbinding = async {
                let unbound = self.node.backends.shares.unbind(place, numbers).await;
                unbound.map_err(|error| PodError::internal(DOING).because(error))
            };
            within(BOUND_WITHIN, DOING, unbinding).await?;
        }
        Ok(())
    }

    fn place(&self, id: &str) -> ContainerDir {
        let shared = shared_dir::root(&self.node.places.pod_shared_dir(&self.record.id));
        ContainerDir { shared, container: share_name(id).to_owned(), vmm: self.status.vmm }
    }
}

/// The places used by no container but this one, by their directories. A place made for a container that is
/// still there goes with that one.
fn unused_places<'a>(
    record: &ContainerRecord,
    all: impl Iterator<Item = &'a ContainerRecord>,
) -> BTreeMap<String, Vec<usize>> {
    let others: Vec<&ContainerRecord> = all.filter(|other| other.id != record.id).collect();
    let is_used = |place: &SharedPlace| {
        let is_made_for = |other: &&ContainerRecord| share_name(&other.id) == place.container;
        let uses =
            |other: &&ContainerRecord| other.joined.iter().any(|joined| joined.place.key() == place.key());
        others.iter().any(|other| is_made_for(other) || uses(other))
    };
    let mut unused: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for place in mounts::places(record).into_iter().filter(|place| !is_used(place)) {
        let numbers = unused.entry(place.container).or_default();
        if !numbers.contains(&place.number) {
            numbers.push(place.number);
        }
    }
    unused
}
