//! Blocks of commands on the pages, and the way each of them is run. Readers paste them, so a test runs them
//! as written.
//!
//! ```text
//!   page ── block.rs ──┬── check.rs ───► breaches, for tests/tidy
//!                      │
//!   blocks.toml ─ row.rs ─ script.rs ──► scripts ─ bash ─► output ─ shown.rs, for tests/e2e
//! ```
//! Nothing here runs a command.

#![forbid(unsafe_code)]

mod block;
mod check;
mod row;
mod script;
mod shown;

pub use block::{Block, blocks};
pub use check::{Read, check};
pub use row::{Change, ROWS, Row, rows};
pub use script::{END, find, script, transcript};
pub use shown::is_shown;
