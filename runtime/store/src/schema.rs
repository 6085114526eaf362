//! The schema's version, and the upgrades from one to the next.
//!
//! To change the stored form, raise [`SCHEMA_VERSION`] and add a step to [`UPGRADES`]. The step runs once, in
//! the transaction writing the new version. A field that an earlier daemon must not pass over is a change,
//! too: that daemon would drop it with its next write. `stored.txt` has all fields beside the number.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde_json::{Value, json};

use crate::error::{StoreError, reading, writing};
use crate::table::Table;

/// Version written by this code, and the newest it can read.
pub const SCHEMA_VERSION: u64 = 3;

/// VM memory in bytes that version 1 assumed for the kernel and the agent if no overhead was sent.
const GUEST_OVERHEAD_V1: u64 = 48 << 20;

const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const VERSION_KEY: &str = "schema_version";

/// A step from one version to the next.
type Upgrade = fn(&WriteTransaction) -> Result<(), StoreError>;

/// Step `i` upgrades from version `i + 1` to `i + 2`. Version 3 has the places of a pod's volumes. Records
/// without them are right as they are, but a daemon of version 2 would drop the places.
const UPGRADES: [Upgrade; SCHEMA_VERSION as usize - 1] = [sizes_become_bounds, |_| Ok(())];

/// Returns true if the file has this version already. Then opening it needs no write, so the daemon can start
/// with a full disk.
pub(crate) fn is_current(database: &Database) -> Result<bool, StoreError> {
    let transaction = database.begin_read().map_err(reading)?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(false),
        Err(error) => return Err(reading(error)),
    };
    let found = meta.get(VERSION_KEY).map_err(reading)?.map(|value| value.value());
    Ok(found == Some(SCHEMA_VERSION))
}

/// Creates the tables, refuses a newer file, upgrades an older one.
pub(crate) fn prepare(path: &Path, transaction: &WriteTransaction) -> Result<(), StoreError> {
    for table in Table::ALL {
        transaction.open_table(table.definition()).map_err(writing)?;
    }
    let mut meta = transaction.open_table(META).map_err(writing)?;
    let found = meta.get(VERSION_KEY).map_err(writing)?.map(|value| value.value());
    let found = found.unwrap_or(SCHEMA_VERSION);
    if found > SCHEMA_VERSION {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    let done = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
    for upgrade in UPGRADES.iter().skip(done) {
        upgrade(transaction)?;
    }
    meta.insert(VERSION_KEY, SCHEMA_VERSION).map_err(writing)?;
    Ok(())
}

/// Upgrades to version 2: a pod's VM had one `size`; now it has `bounds`. A VM of version 1 cannot grow.
fn sizes_become_bounds(transaction: &WriteTransaction) -> Result<(), StoreError> {
    let mut records = transaction.open_table(Table::PodRecords.definition()).map_err(writing)?;
    let mut changed = Vec::new();
    for entry in records.iter().map_err(writing)? {
        let (key, value) = entry.map_err(writing)?;
        // The reader reports an invalid record, with its key.
        let Ok(Value::Object(mut record)) = serde_json::from_slice(value.value()) else { continue };
        if let Some(size) = record.remove("size") {
            let memory = size["memory_bytes"].as_u64().unwrap_or_default();
            let default = memory.saturating_sub(GUEST_OVERHEAD_V1);
            record.insert("bounds".into(), json!({ "boot": size, "most": size, "memory_default": default }));
            changed.push((key.value().to_owned(), Value::Object(record).to_string()));
        }
    }
    for (key, record) in changed {
        records.insert(key.as_str(), record.as_bytes()).map_err(writing)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) fn set_version(transaction: &WriteTransaction, version: u64) {
    transaction.open_table(META).unwrap().insert(VERSION_KEY, version).unwrap();
}
