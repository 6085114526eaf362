//! Records and statuses on disk: one redb file, values as JSON.
//!
//! A *record* holds a request and never changes; a *status* holds the progress of the work. The values'
//! meaning is the caller's: only an upgrade of the schema (`schema.rs`) ever looks into them. A commit is on
//! disk when [`Store::commit`] returns, all of it or nothing. After a disk failure the next call opens the
//! store again. An unreadable value does not prevent reading the others. Next: `store.rs`.

#![forbid(unsafe_code)]

mod batch;
mod disk;
mod error;
mod schema;
mod store;
mod table;

pub use batch::Batch;
pub use error::StoreError;
pub use schema::SCHEMA_VERSION;
pub use store::{Listing, Store};
pub use table::Table;
