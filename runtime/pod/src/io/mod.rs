//! Input and output of containers and of commands in them.
//!
//! ```text
//!   container ── copiers.rs ──► log ──► acks.rs: how much of it the log has
//!                    └──► followers.rs ──► streams.rs: attached clients
//!   command ──── exec.rs ──┬──► captured.rs: one answer
//!                          └──► streams.rs: a client of its own
//!   port ───────► a client of its own (runtime/ways)
//! ```
//!
//! Nothing here decides about a container's life; `container/` and `driver/` do.

pub(crate) mod acks;
pub(crate) mod captured;
pub(crate) mod copiers;
pub(crate) mod exec;
pub(crate) mod followers;
pub(crate) mod output;
mod output_reader;
pub(crate) mod streams;
