//! Pods' networks against the kernel and real plugins. Needs root; `tests/node/run` gives it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod links;
mod node;
mod pod;
mod settings;
