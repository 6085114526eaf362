//! What several plugins ask for, as one: later plugins see what earlier ones asked for, and two that set the same are a conflict. Pure.
//!
//! The rules are those of containerd/nri, `pkg/adaptation/result.go`: a plugin that first removes an entry may set it, whoever had set it.

mod creation;
mod keyed;
mod owners;
mod resources;
mod updates;

pub(crate) use creation::MergedCreation;
pub(crate) use owners::Owners;
pub(crate) use updates::MergedUpdates;
