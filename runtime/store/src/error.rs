//! Why the store failed.

use std::path::PathBuf;

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not a store, in use by another process, or unreadable.
    #[error("opening the store {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// Written by a later Podvisor.
    #[error(
        "the store {} has schema version {found}, and this Podvisor knows up to {known}: use the Podvisor that wrote it",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Ours.
        known: u64,
    },
    /// A value that its reader does not understand.
    #[error("the store's table {table} holds an unreadable value under {key:?}")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Key.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A value that cannot be written as JSON.
    #[error("the value for {key:?} in the store's table {table} cannot be written")]
    Unwritable {
        /// Table.
        table: &'static str,
        /// Key.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The database itself.
    #[error("{doing} the store")]
    Database {
        /// "reading" or "writing".
        doing: &'static str,
        /// Why.
        source: Box<redb::Error>,
    },
}

/// Adapters for `map_err` over redb's many error types.
pub(crate) fn reading(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Database { doing: "reading", source: Box::new(error.into()) }
}

pub(crate) fn writing(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Database { doing: "writing", source: Box::new(error.into()) }
}
