//! The product's code as a graph of names: the modules of every crate, what each defines and imports, and where
//! a path that is written in one of them ends.
//!
//! `tree.rs` reads modules from files, `mentions.rs` collects the paths and method calls that their code has, and
//! `resolve.rs` follows a path through imports and re-exports to the file that defines its item. Code that only
//! tests have is never part of it: items under `#[cfg(test)]`, and files that only such items declare. The
//! graph is built for the checks in `cycles.rs` and `callers.rs`; it judges nothing.
//!
//! The names of methods are not resolved, since that needs types: a method is known by its name alone.

mod attributes;
mod mentions;
mod resolve;
mod tree;

pub(crate) use attributes::only_tests;
pub use mentions::{Form, Mention};
pub use resolve::Target;
pub use tree::{Code, Definition, Kind, Module};
