//! The images of a node: registries, archives, layers, and the resulting images. Each file has one topic.
//! `node`, `wire`, `archives` and `look` are shared by the others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod access;
mod archives;
mod digests;
mod endless;
mod greedy;
mod hostile;
mod hosts;
mod import;
mod import_hostile;
mod indexes;
mod large;
mod layers;
mod look;
mod mirrors;
mod node;
mod parts;
mod places;
mod pull;
mod random;
mod refuse;
mod tokens;
mod trust;
mod unchanged;
mod wire;
