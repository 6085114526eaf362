//! Container images: pulled from registries, verified, and made into one EROFS file each.
//!
//! ```text
//! registry ──► blobs/sha256/<digest>      compressed layers and configs, verified, resumable while `.partial`
//!      └─────► tmp/<pull>/                each layer's contents, while it streams in
//!                   └──► images/<digest>.erofs   what a container's root is made from
//!              images.json                what there is, by id, tag and digest
//! ```
//!
//! [`Images`] is the whole interface. Where to read on: `images.rs` (who may call what), `pull.rs` (the steps of a
//! pull), `blob.rs` (one blob's way from network to disk), `layer.rs` and `archive.rs` (its way into a tree),
//! `store.rs` (what is kept, and recovery), `name.rs` (how images are called), `hosts.rs` (mirrors).
//!
//! Everything that comes from a registry is foreign: sizes have bounds ([`Limits`]), digests are checked, and what is
//! wrong is told by name ([`ImageError`]). This crate never mounts anything and runs nothing from an image.
#![forbid(unsafe_code)]

mod archive;
mod blob;
mod build;
mod config;
mod endpoint;
mod error;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod hosts;
mod images;
mod layer;
mod limits;
mod locks;
mod manifest;
mod name;
mod pax;
mod pull;
mod registry;
mod store;

pub use config::DeclaredConfig;
pub use error::{ImageError, Wrong};
pub use images::{Image, Images, Usage};
pub use limits::Limits;
pub use registry::{Credentials, RegistryConfig};
