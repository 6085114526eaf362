//! Records and statuses on disk: one redb file, values as JSON.
//!
//! A *record* says what was asked for and never changes; a *status* says how far the work is. The values'
//! meaning is the caller's: only an upgrade of the schema (`schema.rs`) ever looks into them. A commit is
//! on disk when [`Store::commit`] returns, all of it or nothing. A store whose disk fails is opened again by the next
//! call, and a value that cannot be read keeps no other from being read. Where to read on: `store.rs`.

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
