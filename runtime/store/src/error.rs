//! Failures of the store. Only messages.

use std::path::PathBuf;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not a store, in use by another process, or unreadable.
    #[error("opening the store {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The database's error.
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
        /// The version in the file.
        found: u64,
        /// The newest version supported by this Podvisor.
        known: u64,
    },
    /// A value cannot be parsed.
    #[error("the store's table {table} holds an unreadable value under {key:?}")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Key.
        key: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A value cannot be encoded as JSON.
    #[error("the value for {key:?} in the store's table {table} cannot be written")]
    Unwritable {
        /// Table.
        table: &'static str,
        /// Key.
        key: String,
        /// The encoder's error.
        source: serde_json::Error,
    },
    /// The database failed.
    #[error("{doing} the store")]
    Database {
        /// "reading" or "writing".
        doing: &'static str,
        /// The database's error.
        source: Box<redb::Error>,
    },
}

/// Adapter for `map_err` over redb's many error types, while reading.
pub(crate) fn reading(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Database { doing: "reading", source: Box::new(error.into()) }
}

/// Adapter for `map_err` over redb's many error types, while writing.
pub(crate) fn writing(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Database { doing: "writing", source: Box::new(error.into()) }
}
