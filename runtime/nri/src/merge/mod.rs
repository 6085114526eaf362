//! Merges the answers of several plugins into one. Later plugins see the requests of earlier ones, and two
//! plugins setting the same field conflict. Pure.
//!
//! The rules are those of containerd/nri, `pkg/adaptation/result.go`: a plugin may set an entry after
//! removing it, even if another plugin set it before.

mod creation;
mod keyed;
mod owners;
mod resources;
mod updates;

pub(crate) use creation::MergedCreation;
pub(crate) use owners::Owners;
pub(crate) use updates::MergedUpdates;
