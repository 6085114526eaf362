//! Binds the host paths that a container mounts into the pod's shared directory, and takes the binds away.

use runtime_spec::{ContainerSpec, share_name};

use super::Driver;
use crate::backend::ContainerDir;
use crate::container::mounts;
use crate::error::PodError;
use crate::record::ContainerRecord;

impl Driver {
    /// Binds the host paths that the container mounts: all or none.
    pub(super) async fn bind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let binds = mounts::binds(&record.spec);
        if binds.is_empty() {
            return Ok(());
        }
        let bound = self.node.backends.shares.bind(self.place(&record.id), binds).await;
        bound.map_err(|error| error.during("mounts"))
    }

    /// Takes the container's binds away. The call is idempotent.
    pub(super) async fn unbind_mounts(&self, id: &str, spec: &ContainerSpec) -> Result<(), PodError> {
        let numbers: Vec<usize> = spec.host_mounts().map(|(number, _)| number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let unbound = self.node.backends.shares.unbind(self.place(id), numbers).await;
        unbound.map_err(|error| PodError::internal("taking the mounts away").because(error))
    }

    fn place(&self, id: &str) -> ContainerDir {
        let shared = self.node.places.pod_shared_dir(&self.record.id);
        ContainerDir { shared, container: share_name(id).to_owned(), vmm: self.status.vmm }
    }
}
