//! Writes EROFS file systems: the read-only image that a container's root is made from.
//!
//! Two things are kept apart. The **tree** ([`Tree`]) is metadata: names, attributes, and for each regular file an
//! [`Extent`] that says where its content lies. The **data** is that content, put into blobs by a [`DataWriter`]
//! while a layer streams in. [`Tree::apply_layer`] stacks OCI layers; [`write_metadata`] writes all of a file system but the
//! blobs. The blobs side by side behind it, each at the place that [`place_blobs`] says, make the file system whole:
//! `[superblock and metadata][blob 0][blob 1]…`, so that images which have a layer in common have its blob in common.
//!
//! Where to read on: `tree.rs` (nodes and paths), `layer.rs` (the rules of OCI layers), `layout.rs` (what goes
//! where), `write.rs` (bytes out), `format.rs` (the on-disk structures), `limits.rs` (bounds).
//!
//! This crate is pure: it reads and writes only through the traits of `std::io` that it is given, needs no
//! privileges, and the same tree always gives the same bytes. No file is ever opened or mounted here.
#![forbid(unsafe_code)]

mod attributes;
mod data;
mod error;
mod format;
mod layer;
mod layout;
mod limits;
mod path;
mod tree;
mod write;
mod xattr;

pub use attributes::{Attributes, Device, Timestamp};
pub use data::{DataWriter, Extent};
pub use error::{Problem, TreeError, WriteError};
pub use layer::{Entry, EntryKind};
pub use layout::{BLOB_ALIGNMENT, place_blobs};
pub use limits::{MAX_METADATA_BYTES, MAX_NODES};
pub use tree::Tree;
pub use write::write_metadata;
pub use xattr::is_supported_xattr;
