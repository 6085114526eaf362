//! Writes EROFS file systems: the read-only images used as container roots.
//!
//! Metadata and data are separate. The **tree** ([`Tree`]) is metadata: names, attributes, and an [`Extent`]
//! for each regular file with the place of its content. The **data** is this content. A [`DataWriter`] puts
//! it into blobs while a layer streams in. [`Tree::apply_layer`] stacks OCI layers. [`write_metadata`] writes
//! a complete file system except the blobs. To complete it, the blobs follow the metadata at the positions
//! given by [`place_blobs`]: `[superblock and metadata][blob 0][blob 1]…`. Images with a common layer thus
//! share its blob.
//!
//! Where to read on: `tree.rs` (nodes and paths), `layer.rs` (the rules of OCI layers), `layout.rs`
//! (positions), `write.rs` (output), `format.rs` (the on-disk structures), `limits.rs` (limits).
//!
//! This crate is pure: it reads and writes only through the given traits of `std::io`, needs no privileges,
//! and the same tree always gives the same bytes. No file is ever opened or mounted here.
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
