//! Binds the host paths of a container's mounts into the pod's shared directory, and removes the binds. The
//! VMM learns the groups for its access there.

use std::collections::BTreeSet;
use std::time::Duration;

use runtime_spec::{User, share_name};

use super::Driver;
use crate::backend::ContainerDir;
use crate::blocking::within;
use crate::container::mounts;
use crate::error::PodError;
use crate::host::shared_dir;
use crate::live::Live;
use crate::record::ContainerRecord;

/// How long binding or unbinding a container's host paths may take. A path on a hanging file system (an
/// unreachable NFS server) keeps a thread, not the pod.
const BOUND_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// Binds the container's host paths: all or none.
    pub(super) async fn bind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let binds = mounts::binds(&record.spec, &record.guest_volumes, &record.host_sockets);
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
        let binds = mounts::binds(&record.spec, &record.guest_volumes, &record.host_sockets);
        if binds.is_empty() || user.groups.iter().all(|group| self.shared_groups.contains(group)) {
            return Ok(());
        }
        let groups: BTreeSet<u32> = self.containers.groups().chain(user.groups.iter().copied()).collect();
        let sending = live.vm.share_groups(&groups);
        sending.await.map_err(|error| error.during("sending the VMM the container's groups"))?;
        self.shared_groups = groups;
        Ok(())
    }

    /// Removes the container's binds. The call is idempotent.
    pub(super) async fn unbind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let binds = mounts::binds(&record.spec, &record.guest_volumes, &record.host_sockets);
        let numbers: Vec<usize> = binds.into_iter().map(|(number, _)| number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        const DOING: &str = "taking the mounts away";
        let unbinding = async {
            let unbound = self.node.backends.shares.unbind(self.place(&record.id), numbers).await;
            unbound.map_err(|error| PodError::internal(DOING).because(error))
        };
        within(BOUND_WITHIN, DOING, unbinding).await
    }

    fn place(&self, id: &str) -> ContainerDir {
        let shared = shared_dir::root(&self.node.places.pod_shared_dir(&self.record.id));
        ContainerDir { shared, container: share_name(id).to_owned(), vmm: self.status.vmm }
    }
}
