//! Checks of the repository's own rules, run as tests (`tests/repository.rs`).
//!
//! Each rule is one module: a table or a sentence that says what holds, and a `check` that is given the
//! crates or the sources as values and answers with one line per breach. So each check can be shown, by
//! its own tests, to find what it should. Only [`Repository`] reads the disk; nothing here changes it.

#![forbid(unsafe_code)]

pub mod allowance;
pub mod callers;
pub mod code;
pub mod commits;
pub mod conversions;
pub mod cycles;
pub mod edges;
pub mod headers;
pub mod names;
mod repository;
pub mod sentences;
pub mod sizes;
pub mod unsafe_code;
pub mod versions;
pub mod words;

pub use repository::{Checkout, Crate, Dependency, Repository, Source};
