//! The product's code as a graph of names: the modules of every crate, the definitions and imports of each,
//! and the end of each path written in one of them.
//!
//! `tree.rs` reads modules from files, `mentions.rs` collects the paths and method calls in their code, and
//! `resolve.rs` follows a path through imports and re-exports to the file of its item's definition. Test code
//! is never part of it: items under `#[cfg(test)]`, and files only declared by such items. The graph is built
//! for the checks in `cycles.rs` and `callers.rs`; it judges nothing.
//!
//! The names of methods are not resolved, because this needs types: a method is only known by its name.

mod attributes;
mod mentions;
mod resolve;
mod tree;

pub(crate) use attributes::only_tests;
pub use mentions::{Form, Mention};
pub use resolve::Target;
pub use tree::{Code, Definition, Kind, Module};
