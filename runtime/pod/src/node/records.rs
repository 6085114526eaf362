//! The store's part: records and statuses of pods and containers, committed beside the async threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime_store::{Batch, Store, StoreError, Table};

use crate::blocking::blocking;
use crate::error::{PodError, chain_of};
use crate::record::{ContainerRecord, ContainerStatus, PodRecord, PodStatus};

/// The work that a failed commit was part of.
const DOING: &str = "writing down how far it is";

/// The pause between tries to write outcomes that the disk did not take: a disk is freed in minutes, and a daemon that
/// is killed before the next try finds what has ended once more.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// All that is kept on disk of pods and containers. Cheap to clone.
///
/// There are two ways to write: what is about to be done is *put*, and an error keeps it from being done; an outcome is
/// *settled*, and stands even where the disk is full: it is written as soon as the disk takes it.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    store: Store,
    /// Whether a task tries to write settled outcomes.
    settling: Arc<AtomicBool>,
    /// The disk, as a test plays it.
    #[cfg(test)]
    pub(crate) disk: crate::tests::StateDisk,
}

impl Records {
    pub(crate) fn new(store: Store) -> Records {
        Records {
            store,
            settling: Arc::default(),
            #[cfg(test)]
            disk: crate::tests::StateDisk::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Settles how far a pod is.
    pub(crate) async fn settle_pod_status(&self, id: &str, status: &PodStatus) {
        self.settle(Batch::new().put(Table::PodStatuses, id, status)).await;
    }

    /// Settles how far a container is.
    pub(crate) async fn settle_container_status(&self, id: &str, status: &ContainerStatus) {
        self.settle(Batch::new().put(Table::ContainerStatuses, id, status)).await;
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

    /// Forgets a pod and these containers, all at once. A daemon that is killed before the disk takes that finds them
    /// again, as ended.
    pub(crate) async fn forget(&self, pod_id: Option<&str>, containers: &[String]) {
        let mut batch = Batch::new();
        for id in containers {
            batch = batch.delete(Table::ContainerRecords, id).delete(Table::ContainerStatuses, id);
        }
        if let Some(id) = pod_id {
            batch = batch.delete(Table::PodRecords, id).delete(Table::PodStatuses, id);
        }
        self.settle(Ok(batch)).await;
    }

    /// Writes an outcome, now or as soon as the disk takes it.
    async fn settle(&self, batch: Result<Batch, StoreError>) {
        let store = self.store.clone();
        let keeping = blocking(DOING, move || batch.map(|batch| store.keep(batch))).await;
        let settled = match keeping {
            Ok(()) => self.commit(Batch::new()).await,
            Err(error) => Err(error),
        };
        let Err(error) = settled else { return };
        if !self.settling.swap(true, Ordering::AcqRel) {
            tracing::error!(
                error = chain_of(&error),
                "outcomes are not on disk, and are tried to be written again"
            );
            tokio::spawn(self.clone().settle_later());
        }
    }

    /// Tries until the disk takes what was settled.
    async fn settle_later(self) {
        loop {
            tokio::time::sleep(SETTLE_EVERY).await;
            // Before the try: what is settled during it may come too late for it.
            self.settling.store(false, Ordering::Release);
            if self.commit(Batch::new()).await.is_ok() {
                tracing::info!("outcomes are on disk again");
                return;
            }
            if self.settling.swap(true, Ordering::AcqRel) {
                // Another task tries already.
                return;
            }
        }
    }

    /// Commits beside the async threads, since a commit waits for the disk.
    async fn commit(&self, batch: Batch) -> Result<(), PodError> {
        let store = self.store.clone();
        #[cfg(test)]
        self.disk.takes().await.map_err(|error| PodError::internal(DOING).because(error))?;
        let committed = blocking(DOING, move || store.commit(batch)).await;
        #[cfg(test)]
        self.disk.has_taken().await.map_err(|error| PodError::internal(DOING).because(error))?;
        committed
    }
}

fn batched(batch: Result<Batch, StoreError>) -> Result<Batch, PodError> {
    batch.map_err(|error| PodError::internal(DOING).because(error))
}
