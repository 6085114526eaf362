//! The store's part: records and statuses of pods and containers, committed beside the async threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use runtime_blocking::Pool;
use runtime_spans::{span, step};
use runtime_store::{Batch, Store, StoreError, Table};

use super::writer::{DOING, Work, Writer};
use crate::blocking::within;
use crate::error::{PodError, chain_of};
use crate::record::{ContainerRecord, ContainerStatus, PodRecord, PodStatus};

/// Threads for the records' disk. A store makes one transaction at a time.
const THREADS: usize = 1;

/// How long a change may take if it must be on disk before the next step. After this time the step is not
/// done. A hanging disk may still make the change, so it is undone like every other step.
const PUT_WITHIN: Duration = Duration::from_secs(60);

/// How long saving an outcome may take before it is published anyway.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// The pause between attempts to write outcomes rejected by the disk. A disk is freed in minutes. If the
/// daemon is killed before the next attempt, its successor discovers these ends again.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// All persistent data of pods and containers. Cheap to clone.
///
/// There are two ways to write. A planned change is *put*, and an error prevents it. An outcome is *settled*,
/// and stands even if the disk is full or hangs: it is written as soon as the disk accepts it.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    store: Store,
    pool: Pool,
    writer: Writer,
    /// Whether a task is trying to write settled outcomes.
    settling: Arc<AtomicBool>,
    /// Names of the values in quarantine, as of the start: reading them needs no disk.
    quarantined: Arc<OnceLock<Vec<String>>>,
    /// Why the last commit failed; `None` after a successful one.
    trouble: Arc<Mutex<Option<String>>>,
    /// Whether a task is checking if the disk accepts changes again.
    probing: Arc<AtomicBool>,
}

impl Records {
    pub(crate) fn new(store: Store) -> Records {
        let pool = Pool::new("the disk of the pods' records", THREADS);
        let writer = Writer::new(store.clone(), pool.clone());
        Records {
            store,
            pool,
            writer,
            settling: Arc::default(),
            quarantined: Arc::default(),
            trouble: Arc::default(),
            probing: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The threads for the store.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Stores the names of the values in quarantine, once at the start.
    pub(crate) fn note_quarantined(&self, names: Vec<String>) {
        // A second start in one process finds the same.
        let _ = self.quarantined.set(names);
    }

    pub(crate) fn quarantined(&self) -> Vec<String> {
        self.quarantined.get().cloned().unwrap_or_default()
    }

    /// Why the disk accepts no changes, according to the last commit. This call also starts an empty commit
    /// in the background, one at a time, so a freed disk is noticed even if nothing is written.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A task writing outcomes checks by itself.
        let is_looked_at = self.settling.load(Ordering::Acquire);
        if !is_looked_at && !self.probing.swap(true, Ordering::AcqRel) {
            let records = self.clone();
            tokio::spawn(async move {
                // Every commit notes its own outcome.
                let _ = records.commit(PUT_WITHIN, Work::Probe).await;
                records.probing.store(false, Ordering::Release);
            });
        }
        Some(trouble)
    }

    /// Whether outcomes are not on disk, and their write is being retried.
    pub(crate) fn outcomes_wait(&self) -> bool {
        self.settling.load(Ordering::Acquire)
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
        self.put(batched(Batch::new().put(Table::PodStatuses, id, status))?).await
    }

    pub(crate) async fn put_container_status(
        &self,
        id: &str,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        self.put(batched(Batch::new().put(Table::ContainerStatuses, id, status))?).await
    }

    pub(crate) async fn put_new_pod(&self, record: &PodRecord, status: &PodStatus) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::PodRecords, &record.id, record))?;
        self.put(batched(batch.put(Table::PodStatuses, &record.id, status))?).await
    }

    pub(crate) async fn put_new_container(
        &self,
        record: &ContainerRecord,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::ContainerRecords, &record.id, record))?;
        self.put(batched(batch.put(Table::ContainerStatuses, &record.id, status))?).await
    }

    /// Forgets a pod and these containers, all at once. If the daemon is killed before this is on disk, its
    /// successor finds them again, as ended.
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

    /// Writes an outcome, now or as soon as the disk accepts it. If others already wait for the disk, this
    /// one joins them.
    async fn settle(&self, batch: Result<Batch, StoreError>) {
        match batch {
            Ok(batch) => self.store.keep(batch),
            Err(error) => return tracing::error!(error = chain_of(&error), "an outcome is not written"),
        }
        if self.settling.load(Ordering::Acquire) {
            return;
        }
        let Err(error) = self.commit(SETTLED_WITHIN, Work::Kept).await else { return };
        if !self.settling.swap(true, Ordering::AcqRel) {
            tracing::error!(
                error = chain_of(&error),
                "outcomes are not on disk, and are tried to be written again"
            );
            tokio::spawn(self.clone().settle_later());
        }
    }

    /// Retries until the disk accepts the settled outcomes.
    async fn settle_later(self) {
        loop {
            tokio::time::sleep(SETTLE_EVERY).await;
            if self.commit(PUT_WITHIN, Work::Kept).await.is_err() {
                continue;
            }
            self.settling.store(false, Ordering::Release);
            // Outcomes settled during the attempt may have come too late for it.
            if self.store.has_kept() && !self.settling.swap(true, Ordering::AcqRel) {
                continue;
            }
            tracing::info!("outcomes are on disk again");
            return;
        }
    }

    async fn put(&self, batch: Batch) -> Result<(), PodError> {
        self.commit(PUT_WITHIN, Work::Changes(batch)).await
    }

    /// Has the writer write, since a commit waits for the disk.
    async fn commit(&self, bound: Duration, work: Work) -> Result<(), PodError> {
        let committing = async {
            #[cfg(test)]
            self.disk().takes().await.map_err(|error| PodError::internal(DOING).because(error))?;
            let committed = self.writer.write(work).await;
            #[cfg(test)]
            self.disk().has_taken().await.map_err(|error| PodError::internal(DOING).because(error))?;
            committed
        };
        let committed = step(span!("commit"), within(bound, DOING, committing)).await;
        let trouble = committed.as_ref().err().map(PodError::chain);
        // If nothing was written, the disk's state is unknown.
        if !matches!(committed, Ok(false)) {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        }
        committed.map(drop)
    }

    /// The disk, as a test plays it.
    #[cfg(test)]
    pub(crate) fn disk(&self) -> &crate::tests::StateDisk {
        &self.writer.disk
    }

    /// Has a test play the disk.
    #[cfg(test)]
    pub(crate) fn set_disk(&mut self, disk: crate::tests::StateDisk) {
        self.writer.disk = disk;
    }
}

fn batched(batch: Result<Batch, StoreError>) -> Result<Batch, PodError> {
    batch.map_err(|error| PodError::internal(DOING).because(error))
}
