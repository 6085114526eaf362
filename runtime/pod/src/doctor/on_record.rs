//! The record of a daemon. A running daemon is asked by other modules; of a stopped one, a copy of its store
//! is read here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use runtime_store::{Store, Table};
use serde::de::IgnoredAny;

use crate::dirs::DaemonDirs;
use crate::error::{PodError, chain_of};
use crate::record::{PodRecord, PodStage, PodStatus};

/// A daemon of this node, and its record.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Its place.
    pub place: DaemonPlace,
    /// Its complete record.
    pub record: OnRecord,
}

/// The place of a daemon of this node.
#[derive(Clone, Debug)]
pub struct DaemonPlace {
    /// The daemon's directories.
    pub dirs: DaemonDirs,
    /// The daemon's CRI socket.
    pub socket: PathBuf,
    /// Whether it runs.
    pub life: Life,
}

/// Whether a daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The daemon serves, and keeps its own things in order.
    Serving,
    /// The daemon does not run now, and its pods wait for it.
    Stopped,
    /// The daemon belonged to a command and has ended with it: its leftovers have no owner.
    Over,
}

/// All records about pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnRecord {
    /// Pods by id, including starting ones.
    pub pods: BTreeMap<String, PodOnRecord>,
    /// Ids of containers.
    pub containers: BTreeSet<String>,
    /// Unreadable values, each with the reason.
    pub unreadable: Vec<String>,
    /// Names of values found unreadable earlier, and now in quarantine.
    pub quarantined: Vec<String>,
}

/// A pod on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOnRecord {
    /// Namespace and name, joined by a slash.
    pub name: String,
    /// Whether a VM runs for it.
    pub ready: bool,
    /// Why something of it could not be removed, if so.
    pub unclean: Option<String>,
}

impl OnRecord {
    /// Reads the record of a stopped daemon. Nothing is written, and a daemon without a store has none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn of_stopped(dirs: &DaemonDirs) -> Result<OnRecord, PodError> {
        let failed = |error| PodError::internal("reading the pods' records").because(error);
        let Some(store) = Store::open_copy(&dirs.store()).map_err(failed)? else {
            return Ok(OnRecord::default());
        };
        let mut on_record =
            OnRecord { quarantined: store.quarantined().map_err(failed)?, ..OnRecord::default() };
        let statuses = store.list::<PodStatus>(Table::PodStatuses).map_err(failed)?;
        let mut of_status: BTreeMap<String, (bool, Option<String>)> = statuses
            .values
            .into_iter()
            .map(|(id, status)| (id, (status.stage == PodStage::Ready, status.unclean)))
            .collect();
        let records = store.list::<PodRecord>(Table::PodRecords).map_err(failed)?;
        let containers = store.list::<IgnoredAny>(Table::ContainerRecords).map_err(failed)?;
        for (id, _) in &records.unreadable {
            // Its objects stay owned until a daemon has put it into quarantine.
            on_record.pods.insert(id.clone(), PodOnRecord::default());
        }
        for (id, record) in records.values {
            let name = format!("{}/{}", record.spec.namespace, record.spec.name);
            let (ready, unclean) = of_status.remove(&id).unwrap_or_default();
            on_record.pods.insert(id, PodOnRecord { name, ready, unclean });
        }
        on_record.containers = containers.values.into_iter().map(|(id, _)| id).collect();
        let unreadable =
            records.unreadable.into_iter().chain(statuses.unreadable).chain(containers.unreadable);
        on_record.unreadable = unreadable.map(|(_, error)| chain_of(&error)).collect();
        Ok(on_record)
    }

    /// Whether the pod is on record, by its id or by the id's beginning, the name of its run directory.
    pub(crate) fn has(&self, pod: &str) -> bool {
        let from = self.pods.range(pod.to_owned()..).next();
        !pod.is_empty() && from.is_some_and(|(id, _)| id.starts_with(pod))
    }
}

#[cfg(test)]
mod tests {
    use runtime_spec::{LayerLimits, VmBounds, VmSize};
    use runtime_store::Batch;

    use super::*;
    use crate::host::memory_events::MemoryEventsBefore;
    use crate::tests::pod;

    #[test]
    fn the_record_of_a_stopped_daemon_is_read_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = DaemonDirs { state_dir: dir.path().to_owned(), run_dir: dir.path().join("run") };
        assert_eq!(OnRecord::of_stopped(&dirs).unwrap(), OnRecord::default());
        assert!(!dirs.store().exists());
        let store = Store::open(&dirs.store()).unwrap();
        let size = VmSize { memory_bytes: 64 << 20, vcpus: 1 };
        let bounds = VmBounds { boot: size, most: size, ..VmBounds::default() };
        let (id, spec) = (crate::clock::new_id(), pod("web"));
        let layer_limits = LayerLimits::default();
        let web = PodRecord {
            id,
            spec,
            handler: "kvm".into(),
            bounds,
            scratch_bytes: 4096,
            layer_limits,
            memory_events_before: MemoryEventsBefore::default(),
            created_at_ns: 1,
        };
        let unclean = Some("a disk".to_owned());
        let status = PodStatus { stage: PodStage::Ready, unclean: unclean.clone(), ..PodStatus::starting() };
        let batch = Batch::new()
            .put(Table::PodRecords, &web.id, &web)
            .and_then(|batch| batch.put(Table::PodStatuses, &web.id, &status))
            .and_then(|batch| batch.put(Table::PodRecords, "torn", &1))
            .and_then(|batch| batch.put(Table::ContainerRecords, "c1", &1))
            .and_then(|batch| batch.put(Table::ContainerStatuses, "old", &1));
        store.commit(batch.unwrap()).unwrap();
        store.quarantine(Table::ContainerStatuses, &["old".to_owned()]).unwrap();
        drop(store);
        let before = std::fs::read(dirs.store()).unwrap();
        let on_record = OnRecord::of_stopped(&dirs).unwrap();
        assert_eq!(on_record.pods[&web.id], PodOnRecord { name: "default/web".into(), ready: true, unclean });
        assert!(on_record.has(&web.id[..24]) && on_record.has("torn") && !on_record.has("zz"));
        assert!(on_record.containers.contains("c1"));
        assert_eq!(on_record.quarantined, ["container_statuses/old"]);
        assert!(on_record.unreadable[0].contains("pod_records"), "{:?}", on_record.unreadable);
        assert!(before == std::fs::read(dirs.store()).unwrap());
    }
}
