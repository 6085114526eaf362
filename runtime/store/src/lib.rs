//! Records and statuses on disk: one redb file, values as JSON.
//!
//! A *record* says what was asked and never changes; a *status* says how far it is. What the values
//! hold is the caller's affair; the store must never look into them. A commit is on disk when
//! [`Store::commit`] returns, all of it or nothing.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod schema;
mod store;
mod table;

pub use batch::Batch;
pub use error::StoreError;
pub use store::Store;
pub use table::Table;
