//! The store itself: one file, opened by one process. Owns transactions; the form of the file is `schema.rs`'s.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable};
use serde::de::DeserializeOwned;

use crate::batch::Batch;
use crate::error::{StoreError, reading, writing};
use crate::schema;
use crate::table::Table;

/// An open store. Cheap to clone. All calls block on the disk: not for an async thread.
#[derive(Clone, Debug)]
pub struct Store {
    database: Arc<Database>,
}

impl Store {
    /// Opens the file, or makes it. A second process is refused while one has it open.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let opening =
            |source: redb::Error| StoreError::Open { path: path.to_owned(), source: Box::new(source) };
        if !path.try_exists().map_err(|error| opening(error.into()))? {
            make(path).map_err(opening)?;
        }
        let database = Database::open(path).map_err(|error| opening(error.into()))?;
        let transaction = database.begin_write().map_err(|error| opening(error.into()))?;
        schema::prepare(path, &transaction)?;
        transaction.commit().map_err(|error| opening(error.into()))?;
        Ok(Store { database: Arc::new(database) })
    }

    /// Makes the changes, all or none; they are on disk when this returns.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(writing)?;
        for (table, key, value) in batch.changes {
            let mut table = transaction.open_table(table.definition()).map_err(writing)?;
            match value {
                Some(bytes) => drop(table.insert(key.as_str(), bytes.as_slice()).map_err(writing)?),
                None => drop(table.remove(key.as_str()).map_err(writing)?),
            }
        }
        transaction.commit().map_err(writing)
    }

    /// Reads one value.
    pub fn get<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StoreError> {
        let transaction = self.database.begin_read().map_err(reading)?;
        let opened = transaction.open_table(table.definition()).map_err(reading)?;
        let value = opened.get(key).map_err(reading)?;
        value.map(|bytes| read(table, key, bytes.value())).transpose()
    }

    /// Reads every value of a table with its key, in the keys' order.
    pub fn list<T: DeserializeOwned>(&self, table: Table) -> Result<Vec<(String, T)>, StoreError> {
        let transaction = self.database.begin_read().map_err(reading)?;
        let opened = transaction.open_table(table.definition()).map_err(reading)?;
        let mut all = Vec::new();
        for entry in opened.iter().map_err(reading)? {
            let (key, value) = entry.map_err(reading)?;
            all.push((key.value().to_owned(), read(table, key.value(), value.value())?));
        }
        Ok(all)
    }
}

/// Makes an empty database under another name first: a process killed in between leaves no half of one at `path`,
/// which nothing would open again.
fn make(path: &Path) -> Result<(), redb::Error> {
    let unfinished = path.with_added_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    drop(Database::create(&unfinished)?);
    std::fs::rename(&unfinished, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(table: Table, key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|source| StoreError::Corrupt {
        table: table.name(),
        key: key.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        (dir, path)
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
        assert_eq!(store.list::<u32>(Table::PodRecords).unwrap(), [("b".to_owned(), 2)]);
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
        let store = Store::open(&path).unwrap();
        let transaction = store.database.begin_write().unwrap();
        schema::set_version(&transaction, 99);
        transaction.commit().unwrap();
        drop(store);
        let error = Store::open(&path).unwrap_err();
        assert!(
            matches!(error, StoreError::TooNew { found: 99, known: schema::SCHEMA_VERSION, .. }),
            "{error}"
        );
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
        let transaction = store.database.begin_write().unwrap();
        schema::set_version(&transaction, 1);
        transaction.commit().unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        let read: serde_json::Value = store.get(Table::PodRecords, "a").unwrap().unwrap();
        let bounds = serde_json::json!({ "boot": size, "most": size, "memory_default": 80 << 20 });
        assert_eq!(read, serde_json::json!({ "id": "a", "bounds": bounds, "scratch_bytes": 1 }));
        assert_eq!(store.get::<String>(Table::PodRecords, "b").unwrap().as_deref(), Some("no record"));
    }

    #[test]
    fn an_unreadable_value_is_named_by_table_and_key() {
        let (_dir, path) = path();
        let store = Store::open(&path).unwrap();
        store.commit(Batch::new().put(Table::ContainerStatuses, "c1", &"text").unwrap()).unwrap();
        let error = store.list::<u32>(Table::ContainerStatuses).unwrap_err().to_string();
        assert!(error.contains("container_statuses") && error.contains("c1"), "{error}");
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
}
