//! The store's part: records and statuses of pods and containers, committed beside the async threads.

use runtime_store::{Batch, Store, StoreError, Table};

use crate::blocking::blocking;
use crate::error::PodError;
use crate::record::{ContainerRecord, ContainerStatus, PodRecord, PodStatus};

/// The work that a failed commit was part of.
const DOING: &str = "writing down how far it is";

/// All that is kept on disk of pods and containers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Records(Store);

impl Records {
    pub(crate) fn new(store: Store) -> Records {
        Records(store)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0
    }

    pub(crate) async fn put_pod_status(&self, id: &str, status: &PodStatus) -> Result<(), PodError> {
        self.commit(batched(Batch::new().put(Table::PodStatuses, id, status))?).await
    }

    pub(crate) async fn put_container_status(
        &self,
        id: &str,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        self.commit(batched(Batch::new().put(Table::ContainerStatuses, id, status))?).await
    }

    pub(crate) async fn put_new_pod(&self, record: &PodRecord, status: &PodStatus) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::PodRecords, &record.id, record))?;
        self.commit(batched(batch.put(Table::PodStatuses, &record.id, status))?).await
    }

    pub(crate) async fn put_new_container(
        &self,
        record: &ContainerRecord,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::ContainerRecords, &record.id, record))?;
        self.commit(batched(batch.put(Table::ContainerStatuses, &record.id, status))?).await
    }

    /// Forgets a pod and these containers, all at once.
    pub(crate) async fn forget(&self, pod_id: Option<&str>, containers: &[String]) -> Result<(), PodError> {
        let mut batch = Batch::new();
        for id in containers {
            batch = batch.delete(Table::ContainerRecords, id).delete(Table::ContainerStatuses, id);
        }
        if let Some(id) = pod_id {
            batch = batch.delete(Table::PodRecords, id).delete(Table::PodStatuses, id);
        }
        self.commit(batch).await
    }

    /// Commits beside the async threads, since a commit waits for the disk.
    async fn commit(&self, batch: Batch) -> Result<(), PodError> {
        let store = self.0.clone();
        blocking(DOING, move || store.commit(batch)).await
    }
}

fn batched(batch: Result<Batch, StoreError>) -> Result<Batch, PodError> {
    batch.map_err(|error| PodError::internal(DOING).because(error))
}
