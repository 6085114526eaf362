//! Checks of the repository's own rules, run as tests (`tests/repository.rs`).
//!
//! Each rule is one module: a table or a sentence with the rule, and a `check`. It gets the crates or the
//! sources as values and returns one line per breach. So each check has its own tests for finding breaches.
//! [`Repository`] reads the crates and sources, [`links::Tree`] the pages; nothing here changes the disk.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod book;
pub mod breaches;
pub mod callers;
pub mod code;
pub mod commits;
pub mod conversions;
pub mod cycles;
pub mod edges;
pub mod features;
pub mod fuzz_lock;
pub mod headers;
pub mod licences;
pub mod links;
mod markdown;
pub mod metrics;
pub mod monitoring;
pub mod named_tests;
pub mod names;
pub mod quotes;
mod repository;
pub mod rows;
pub mod sentences;
pub mod sizes;
pub mod steps;
pub mod stored;
pub mod unsafe_code;
pub mod versions;
pub mod words;

pub use repository::{Checkout, Crate, Dependency, Repository, Source};
