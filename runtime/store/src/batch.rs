//! Changes committed together. Owns their encoding. Only `store.rs` touches the disk.

use serde::Serialize;

use crate::error::StoreError;
use crate::table::Table;

/// Changes in order, committed all or not at all.
#[derive(Debug, Default)]
#[must_use = "a batch changes nothing until it is committed"]
pub struct Batch {
    pub(crate) changes: Vec<(Table, String, Option<Vec<u8>>)>,
    /// The batch's position among all changes of its store. `None` until stamped.
    pub(crate) place: Option<u64>,
}

impl Batch {
    /// Creates a batch without changes.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Adds or replaces a value.
    pub fn put(mut self, table: Table, key: &str, value: &impl Serialize) -> Result<Self, StoreError> {
        let bytes = serde_json::to_vec(value).map_err(|source| StoreError::Unwritable {
            table: table.name(),
            key: key.to_owned(),
            source,
        })?;
        self.changes.push((table, key.to_owned(), Some(bytes)));
        Ok(self)
    }

    /// Removes a value. An absent one is no error.
    pub fn delete(mut self, table: Table, key: &str) -> Self {
        self.changes.push((table, key.to_owned(), None));
        self
    }
}
