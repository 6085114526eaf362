//! Container images: pulled from registries, verified, and converted to one EROFS per image with shared
//! contents.
//!
//! ```text
//! registry ──► blobs/sha256/<digits>      compressed, while a pull needs them; resumable while `.partial`
//!      └─────► tmp/<pull>/                each layer, while it streams in
//!                ├──► layers/<diff id>.data      contents of the layer's files, each at a multiple of 4 KiB
//!                ├──► layers/<diff id>.tree      all else of the layer
//!                └──► images/<id>.erofs          metadata: one merged tree of all layers
//!              images.json                the index: images by id, with their layers
//!
//! an image in a guest:   images/<id>.erofs │ layers/<1st>.data │ layers/<2nd>.data │ …
//!                        each at a multiple of 2 MiB
//! ```
//!
//! [`Images`] is the whole interface. Where to read on:
//!
//! - `images.rs`: the calls
//! - `pull.rs`: the steps of a pull
//! - `blob.rs` and `transfer.rs`: a blob from network to disk
//! - `layer.rs` and `archive.rs`: a blob into a layer's two files
//! - `tree_file.rs` and `build.rs`: layers into an image
//! - `store.rs`: files, index, leases and recovery
//! - `verity.rs`: protection of stored files against changes
//! - `opened.rs`: an image for a guest
//! - `name.rs`: references
//! - `registry.rs` and `hosts.rs`: registries and mirrors
//! - `trust.rs` and `proxy.rs`: the certificates of hosts, and the proxies before them
//!
//! An imported archive is spooled (`spool.rs`) and searched for images (`import.rs`). It then serves blobs
//! like a registry (`source.rs`). `progress.rs` publishes the progress of both.
//!
//! All data from a registry or an archive is untrusted: sizes have bounds ([`Limits`]), digests are checked,
//! and errors name the wrong part ([`ImageError`]). This crate never mounts anything and runs nothing from an
//! image.
#![forbid(unsafe_code)]

mod access;
mod answer;
pub mod archive;
mod blob;
mod blocking;
mod build;
mod challenge;
mod client;
mod compression;
mod config;
mod counters;
mod cpu;
mod digest;
mod endpoint;
mod error;
mod fetch;
mod files;
mod free;
#[doc(hidden)]
pub mod fuzz;
mod hosts;
mod images;
mod import;
mod json;
mod layer;
mod leftovers;
mod limits;
mod locks;
mod manifest;
mod name;
mod opened;
mod pax;
mod pinned;
mod platform;
mod progress;
mod proxy;
mod pull;
mod registry;
mod room;
mod running;
mod said;
mod source;
mod sparse;
mod spool;
mod store;
mod token;
mod transfer;
mod tree_file;
mod trust;
mod verity;

pub use config::DeclaredConfig;
pub use error::{ContentError, ImageError, ImageErrorKind};
pub use images::{Image, Images, Usage};
pub use leftovers::{Leftovers, leftovers};
pub use limits::Limits;
pub use name::{repository, whole_name};
pub use opened::{ImagePart, OpenImage};
pub use pinned::Pinned;
pub use progress::{LayerState, LayerView, PullState, PullView};
pub use registry::{Credentials, RegistryConfig};
pub use running::Running;
pub use store::Lease;
