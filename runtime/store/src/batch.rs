//! Changes that belong together. Owns their encoding; never touches the disk, which `store.rs` does.

use serde::Serialize;

use crate::error::StoreError;
use crate::table::Table;

/// Changes, in order, of which all are committed or none.
#[derive(Debug, Default)]
#[must_use = "a batch changes nothing until it is committed"]
pub struct Batch {
    pub(crate) changes: Vec<(Table, String, Option<Vec<u8>>)>,
    /// The batch's place among all changes of its store, once it has one.
    pub(crate) place: Option<u64>,
}

impl Batch {
    /// No changes.
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

    /// Removes a value; an absent one is no error.
    pub fn delete(mut self, table: Table, key: &str) -> Self {
        self.changes.push((table, key.to_owned(), None));
        self
    }
}
