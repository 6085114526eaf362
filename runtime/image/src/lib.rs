//! Container images: pulled from registries, verified, and made into one EROFS file each.
//!
//! ```text
//! registry ──► blobs/sha256/<digest>      compressed layers and configs, verified, resumable while `.partial`
//!      └─────► tmp/<pull>/                each layer's contents, while it streams in
//!                   └──► images/<digest>.erofs   the lower layer of a container's root
//!              images.json                the index, by id, tag and digest
//! ```
//!
//! [`Images`] is the whole interface. Where to read on: `images.rs` (the calls), `pull.rs` (the steps of a pull),
//! `blob.rs` and
//! `transfer.rs` (a blob from network to disk), `layer.rs` and `archive.rs` (a blob into a tree), `store.rs` (files, index
//! and recovery), `name.rs` (references), `registry.rs` and `hosts.rs` (registries and mirrors).
//!
//! Everything that comes from a registry is foreign: sizes have bounds ([`Limits`]), digests are checked, and errors
//! name the part that is wrong ([`ImageError`]). This crate never mounts anything and runs nothing from an image.
#![forbid(unsafe_code)]

mod archive;
mod blob;
mod blocking;
mod build;
mod challenge;
mod client;
mod config;
mod counters;
mod cpu;
mod endpoint;
mod error;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod hosts;
mod images;
mod layer;
mod leftovers;
mod limits;
mod locks;
mod manifest;
mod name;
mod pax;
mod pinned;
mod pull;
mod registry;
mod room;
mod sparse;
mod store;
mod transfer;

pub use config::DeclaredConfig;
pub use error::{ContentError, ImageError, ImageErrorKind};
pub use images::{Image, Images, Usage};
pub use leftovers::{Leftovers, leftovers};
pub use limits::Limits;
pub use pinned::Pinned;
pub use registry::{Credentials, RegistryConfig};
