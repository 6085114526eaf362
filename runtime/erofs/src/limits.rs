//! The bounds on what an image may hold, and why each is what it is. Owns numbers only.

/// Longest name of one component (EROFS and Linux `NAME_MAX`).
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Longest path of one entry (Linux `PATH_MAX`).
pub(crate) const MAX_PATH_BYTES: usize = 4096;

/// Longest target of a symbolic link (Linux `PATH_MAX` without its NUL).
pub(crate) const MAX_SYMLINK_BYTES: usize = 4095;

/// Nodes that one tree may hold, removed ones included. The largest images in use have about half a million.
pub const MAX_NODES: usize = 2 * 1024 * 1024;

/// Bytes of names, link targets and extended attributes that one tree may hold, removed ones included.
pub const MAX_METADATA_BYTES: usize = 256 * 1024 * 1024;

/// Nesting of directories.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Symbolic links followed while the parents of one path are resolved (as Linux's `MAXSYMLINKS`).
pub(crate) const MAX_LINK_HOPS: usize = 40;

/// Components walked while one path is resolved, those of links' targets included: a bound on work.
pub(crate) const MAX_STEPS: usize = 8192;

/// Bytes that one file's extended attributes may take on disk. Linux allows 64 KiB for a value; this leaves room for
/// a few.
pub(crate) const MAX_XATTR_BYTES: usize = 128 * 1024;

/// Bytes of one extended attribute's value: the on-disk length has 16 bits.
pub(crate) const MAX_VALUE_BYTES: usize = u16::MAX as usize;
