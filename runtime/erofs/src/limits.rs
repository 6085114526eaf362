//! The limits for one image, with their reasons. Owns numbers only.

/// Longest name of one component (EROFS and Linux `NAME_MAX`).
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Longest path of one entry (Linux `PATH_MAX`).
pub(crate) const MAX_PATH_BYTES: usize = 4096;

/// Longest target of a symbolic link (Linux `PATH_MAX` without its NUL).
pub(crate) const MAX_SYMLINK_BYTES: usize = 4095;

/// Most nodes in one tree, including removed ones. The largest images in use have about half a million.
pub const MAX_NODES: usize = 2 * 1024 * 1024;

/// Most bytes of names, link targets and extended attributes in one tree, including removed ones.
pub const MAX_METADATA_BYTES: usize = 256 * 1024 * 1024;

/// Most nested directories.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Most symbolic links followed while resolving the parents of one path (as Linux's `MAXSYMLINKS`).
pub(crate) const MAX_LINK_HOPS: usize = 40;

/// Most components walked while resolving one path, including links' targets. This bounds the work.
pub(crate) const MAX_STEPS: usize = 8192;

/// Most bytes on disk of one file's extended attributes. Linux allows 64 KiB for a value, so a few fit.
pub(crate) const MAX_XATTR_BYTES: usize = 128 * 1024;

/// Most bytes of one extended attribute's value: the on-disk length has 16 bits.
pub(crate) const MAX_VALUE_BYTES: usize = u16::MAX as usize;
