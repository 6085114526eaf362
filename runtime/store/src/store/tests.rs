//! The store on a working disk, and on a failing one.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{Builder, StorageBackend};

use super::*;

fn path() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    (dir, path)
}

fn set_version(path: &Path, version: u64) {
    let database = Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    schema::set_version(&transaction, version);
    transaction.commit().unwrap();
}

/// A disk that may be full (no write succeeds, or files cannot grow), or frozen (no write ends).
#[derive(Clone, Debug, Default)]
struct FullDisk {
    full: Arc<AtomicBool>,
    ungrowing: Arc<AtomicBool>,
    /// Number of requested syncs.
    syncs: Arc<AtomicUsize>,
    /// Held while the disk is frozen.
    frozen: Arc<Mutex<()>>,
}

impl FullDisk {
    fn fill(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    fn growth(&self, possible: bool) {
        self.ungrowing.store(!possible, Ordering::SeqCst);
    }

    fn open(&self, path: &Path) -> Store {
        let disk = self.clone();
        let opener = move |path: &Path| -> Result<Database, redb::Error> {
            let file = File::options().read(true).write(true).open(path)?;
            let on = FileOn { disk: disk.clone(), backend: FileBackend::new(file)? };
            Ok(Builder::new().create_with_backend(on)?)
        };
        Store::open_by(path, Box::new(opener)).unwrap()
    }
}

#[derive(Debug)]
struct FileOn {
    disk: FullDisk,
    backend: FileBackend,
}

impl FileOn {
    fn room(&self) -> io::Result<()> {
        if self.disk.full.load(Ordering::SeqCst) { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for FileOn {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.room()?;
        if self.disk.ungrowing.load(Ordering::SeqCst) && length > self.backend.len()? {
            return Err(ErrorKind::StorageFull.into());
        }
        self.backend.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.syncs.fetch_add(1, Ordering::SeqCst);
        drop(self.disk.frozen.lock());
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

fn on_a_disk(path: &Path) -> (Store, FullDisk) {
    let disk = FullDisk::default();
    (disk.open(path), disk)
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let (_dir, path) = path();
    let store = Store::open(&path).unwrap();
    let batch = Batch::new().put(Table::PodRecords, "a", &1).unwrap();
    let batch = batch.put(Table::PodStatuses, "a", &"ready").unwrap();
    store.commit(batch.put(Table::PodRecords, "b", &2).unwrap()).unwrap();
    store.commit(Batch::new().delete(Table::PodRecords, "a").delete(Table::PodRecords, "none")).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.list::<u32>(Table::PodRecords).unwrap().values, [("b".to_owned(), 2)]);
    assert_eq!(store.get::<String>(Table::PodStatuses, "a").unwrap().as_deref(), Some("ready"));
    assert_eq!(store.get::<String>(Table::ContainerRecords, "a").unwrap(), None);
}

#[test]
fn later_changes_of_a_batch_win() {
    let (_dir, path) = path();
    let store = Store::open(&path).unwrap();
    let batch = Batch::new().put(Table::PodRecords, "a", &1).unwrap();
    store.commit(batch.put(Table::PodRecords, "a", &2).unwrap()).unwrap();
    assert_eq!(store.get::<u32>(Table::PodRecords, "a").unwrap(), Some(2));
}

#[test]
fn a_newer_file_is_refused_with_both_versions() {
    let (_dir, path) = path();
    drop(Store::open(&path).unwrap());
    set_version(&path, 99);
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 99, known: schema::SCHEMA_VERSION, .. }), "{error}");
    assert!(error.to_string().contains("99"), "{error}");
}

#[test]
fn a_pod_of_the_first_version_is_read_as_one_that_cannot_grow() {
    let (_dir, path) = path();
    let store = Store::open(&path).unwrap();
    let size = serde_json::json!({ "memory_bytes": 128 << 20, "vcpus": 2 });
    let old = serde_json::json!({ "id": "a", "size": size, "scratch_bytes": 1 });
    store.commit(Batch::new().put(Table::PodRecords, "a", &old).unwrap()).unwrap();
    store.commit(Batch::new().put(Table::PodRecords, "b", &"no record").unwrap()).unwrap();
    drop(store);
    set_version(&path, 1);
    let store = Store::open(&path).unwrap();
    let read: serde_json::Value = store.get(Table::PodRecords, "a").unwrap().unwrap();
    let bounds = serde_json::json!({ "boot": size, "most": size, "memory_default": 80 << 20 });
    assert_eq!(read, serde_json::json!({ "id": "a", "bounds": bounds, "scratch_bytes": 1 }));
    assert_eq!(store.get::<String>(Table::PodRecords, "b").unwrap().as_deref(), Some("no record"));
}

#[test]
fn an_unreadable_value_is_named_and_keeps_no_other_from_being_read() {
    let (_dir, path) = path();
    let store = Store::open(&path).unwrap();
    let batch = Batch::new().put(Table::ContainerStatuses, "c1", &"text").unwrap();
    store.commit(batch.put(Table::ContainerStatuses, "c2", &7).unwrap()).unwrap();
    let listing = store.list::<u32>(Table::ContainerStatuses).unwrap();
    assert_eq!(listing.values, [("c2".to_owned(), 7)]);
    let [(key, error)] = &listing.unreadable[..] else { panic!("one is unreadable: {listing:?}") };
    assert_eq!(key, "c1");
    let error = error.to_string();
    assert!(error.contains("container_statuses") && error.contains("c1"), "{error}");
}

#[test]
fn a_value_in_quarantine_is_kept_and_listed_no_more() {
    let (_dir, path) = path();
    let store = Store::open(&path).unwrap();
    store.commit(Batch::new().put(Table::PodStatuses, "p1", &"text").unwrap()).unwrap();
    store.quarantine(Table::PodStatuses, &["p1".to_owned(), "none".to_owned()]).unwrap();
    let listing = store.list::<u32>(Table::PodStatuses).unwrap();
    assert!(listing.values.is_empty() && listing.unreadable.is_empty(), "{listing:?}");
    drop(store);
    let database = Database::open(&path).unwrap();
    let table = database.begin_read().unwrap().open_table(QUARANTINE).unwrap();
    assert_eq!(table.get("pod_statuses/p1").unwrap().unwrap().value(), b"\"text\"");
}

#[test]
fn a_copy_shows_what_is_on_disk_and_leaves_that_alone() {
    let (_dir, path) = path();
    assert!(Store::open_copy(&path).unwrap().is_none() && !path.exists());
    let store = Store::open(&path).unwrap();
    assert_eq!(store.quarantined().unwrap(), Vec::<String>::new());
    store.commit(Batch::new().put(Table::PodStatuses, "p1", &"text").unwrap()).unwrap();
    store.quarantine(Table::PodStatuses, &["p1".to_owned()]).unwrap();
    drop(store);
    let before = std::fs::read(&path).unwrap();
    let copy = Store::open_copy(&path).unwrap().unwrap();
    assert_eq!(copy.quarantined().unwrap(), ["pod_statuses/p1"]);
    copy.commit(Batch::new().put(Table::PodRecords, "p2", &1).unwrap()).unwrap();
    drop(copy);
    assert!(before == std::fs::read(&path).unwrap());
    let store = Store::open(&path).unwrap();
    store.remove_quarantined("pod_statuses/p1").unwrap();
    store.remove_quarantined("none").unwrap();
    assert_eq!(store.quarantined().unwrap(), Vec::<String>::new());
}

#[test]
fn a_store_whose_disk_was_full_takes_changes_again_when_there_is_room() {
    let (_dir, path) = path();
    let (store, disk) = on_a_disk(&path);
    let put = |key: &str| Batch::new().put(Table::PodRecords, key, &1).unwrap();
    store.commit(put("before")).unwrap();
    disk.fill(true);
    for _ in 0..3 {
        assert!(matches!(
            store.commit(put("lost")),
            Err(StoreError::Database { .. } | StoreError::Open { .. })
        ));
    }
    disk.fill(false);
    assert_eq!(store.get::<u32>(Table::PodRecords, "before").unwrap(), Some(1));
    store.commit(put("after")).unwrap();
    let keys = store.list::<u32>(Table::PodRecords).unwrap().values;
    assert_eq!(keys.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), ["after", "before"]);
}

#[test]
fn changes_are_kept_while_another_hangs_on_a_frozen_disk() {
    let (_dir, path) = path();
    let (store, disk) = on_a_disk(&path);
    let put = |key: &str, value: u32| Batch::new().put(Table::PodRecords, key, &value).unwrap();
    std::thread::scope(|scope| {
        let frozen = disk.frozen.lock().unwrap();
        store.keep(put("first", 1));
        let hanging = scope.spawn(|| store.commit(put("hanging", 1)));
        while store.has_kept() {
            std::thread::yield_now();
        }
        store.keep(put("hanging", 2));
        assert!(store.has_kept() && !hanging.is_finished());
        drop(frozen);
        hanging.join().unwrap().unwrap();
    });
    store.commit(Batch::new()).unwrap();
    let expected = [("first".to_owned(), 1), ("hanging".to_owned(), 2)];
    assert_eq!(store.list::<u32>(Table::PodRecords).unwrap().values, expected);
}

#[test]
fn what_is_kept_on_a_full_disk_is_written_with_the_next_changes() {
    let (_dir, path) = path();
    let (store, disk) = on_a_disk(&path);
    let put = |key: &str, value: u32| Batch::new().put(Table::PodRecords, key, &value).unwrap();
    store.commit(put("gone", 1)).unwrap();
    disk.fill(true);
    store.keep(put("ended", 1));
    store.keep(put("ended", 2));
    store.keep(Batch::new().delete(Table::PodRecords, "gone"));
    store.commit(put("refused", 1)).unwrap_err();
    assert_eq!(store.0.kept().len(), 2);
    disk.fill(false);
    store.commit(Batch::new()).unwrap();
    assert!(!store.has_kept());
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.list::<u32>(Table::PodRecords).unwrap().values, [("ended".to_owned(), 2)]);
}

#[test]
fn batches_that_are_committed_together_are_one_transaction() {
    let (_dir, path) = path();
    let (store, disk) = on_a_disk(&path);
    let syncs = |work: &dyn Fn()| {
        let before = disk.syncs.load(Ordering::SeqCst);
        work();
        disk.syncs.load(Ordering::SeqCst) - before
    };
    let put = |key: u32| Batch::new().put(Table::PodRecords, &key.to_string(), &key).unwrap();
    let apart = syncs(&|| (0..50).for_each(|key| store.commit(put(key)).unwrap()));
    let together = syncs(&|| assert!(store.commit_all((50..100).map(put).collect()).unwrap()));
    assert!(together * 10 <= apart, "{together} syncs together, {apart} apart");
    assert_eq!(store.list::<u32>(Table::PodRecords).unwrap().values.len(), 100);
}

#[test]
fn what_the_disk_has_already_is_not_written_again() {
    let (_dir, path) = path();
    let (store, disk) = on_a_disk(&path);
    let put = |value: u32| Batch::new().put(Table::PodRecords, "a", &value).unwrap();
    store.commit(put(1)).unwrap();
    let before = disk.syncs.load(Ordering::SeqCst);
    store.commit(put(1)).unwrap();
    store.commit(Batch::new().delete(Table::PodRecords, "none")).unwrap();
    store.keep(put(1));
    store.commit(Batch::new()).unwrap();
    assert!(!store.has_kept());
    assert_eq!(disk.syncs.load(Ordering::SeqCst), before);
    store.probe().unwrap();
    assert!(disk.syncs.load(Ordering::SeqCst) > before, "a probe asks the disk");
}

#[test]
fn of_two_changes_of_one_value_the_later_one_stands_however_they_come_to_the_disk() {
    let (_dir, path) = path();
    let (store, _) = on_a_disk(&path);
    let put = |value: u32| store.stamped(Batch::new().put(Table::PodRecords, "a", &value).unwrap());
    let (first, second) = (put(1), put(2));
    store.commit_all(vec![second, first]).unwrap();
    assert_eq!(store.get::<u32>(Table::PodRecords, "a").unwrap(), Some(2));
    let waiting = put(3);
    store.keep(put(4));
    store.commit(waiting).unwrap();
    assert_eq!(store.get::<u32>(Table::PodRecords, "a").unwrap(), Some(4));
}

#[test]
fn a_store_is_opened_and_read_on_a_full_disk() {
    let (_dir, path) = path();
    Store::open(&path).unwrap().commit(Batch::new().put(Table::PodRecords, "a", &1).unwrap()).unwrap();
    let disk = FullDisk::default();
    disk.growth(false);
    assert_eq!(disk.open(&path).get::<u32>(Table::PodRecords, "a").unwrap(), Some(1));
}

#[test]
fn a_second_opener_is_refused() {
    let (_dir, path) = path();
    let _store = Store::open(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Open { .. })));
}

#[test]
fn a_store_whose_making_was_cut_short_is_made_again() {
    let (_dir, path) = path();
    std::fs::write(path.with_added_extension("new"), vec![0; 4096]).unwrap();
    let store = Store::open(&path).unwrap();
    store.commit(Batch::new().put(Table::PodRecords, "a", &1).unwrap()).unwrap();
    drop(store);
    assert_eq!(Store::open(&path).unwrap().get::<u32>(Table::PodRecords, "a").unwrap(), Some(1));
}

#[test]
fn a_file_of_something_else_is_refused() {
    let (_dir, path) = path();
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(error.to_string().contains("store.redb"), "{error}");
}
