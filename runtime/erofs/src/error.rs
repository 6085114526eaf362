//! Errors of building a tree and of writing it. Owns messages only.

use std::io;

use crate::limits;

/// A failure to add a layer entry to the tree.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("entry \"{entry}\": {problem}")]
pub struct TreeError {
    /// The entry's path, with unprintable bytes escaped.
    pub entry: String,
    /// The problem with the entry.
    pub problem: Problem,
}

impl TreeError {
    pub(crate) fn new(entry: &[u8], problem: Problem) -> Self {
        TreeError { entry: entry.escape_ascii().to_string(), problem }
    }
}

/// A problem with an entry.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// A name is empty, `.` or `..`.
    #[error("a name is empty, \".\" or \"..\"")]
    NoName,
    /// A name holds a NUL byte.
    #[error("the path holds a NUL byte")]
    NulByte,
    /// A name is longer than `limits::MAX_NAME_BYTES`.
    #[error("a name of {0} bytes is longer than {max}", max = limits::MAX_NAME_BYTES)]
    NameTooLong(usize),
    /// The path is longer than `limits::MAX_PATH_BYTES`.
    #[error("the path of {0} bytes is longer than {max}", max = limits::MAX_PATH_BYTES)]
    PathTooLong(usize),
    /// Directories nest deeper than `limits::MAX_DEPTH`.
    #[error("directories nest deeper than {max}", max = limits::MAX_DEPTH)]
    TooDeep,
    /// The tree would have more than `limits::MAX_NODES` nodes.
    #[error("the image has more than {max} files", max = limits::MAX_NODES)]
    TooManyNodes,
    /// Names, attributes and link targets exceed `limits::MAX_METADATA_BYTES`.
    #[error("the image has more than {max} bytes of names and attributes", max = limits::MAX_METADATA_BYTES)]
    TooMuchMetadata,
    /// A parent of the path is a file.
    #[error("the parent \"{0}\" is not a directory")]
    ParentNotDirectory(String),
    /// Following the symbolic links among the parents did not end within `limits::MAX_LINK_HOPS`.
    #[error("more than {max} symbolic links among its parents", max = limits::MAX_LINK_HOPS)]
    TooManyLinks,
    /// The root can only be a directory.
    #[error("the root must be a directory")]
    RootNotDirectory,
    /// A hard link to a missing path.
    #[error("hard link to the missing path \"{0}\"")]
    LinkTargetMissing(String),
    /// A hard link to a directory.
    #[error("hard link to the directory \"{0}\"")]
    LinkTargetDirectory(String),
    /// A symbolic link's target is empty, too long or holds a NUL byte.
    #[error("the symbolic link's target of {0} bytes is empty, has a NUL byte, or is longer than {max}", max = limits::MAX_SYMLINK_BYTES)]
    SymlinkTarget(usize),
    /// A whiteout names nothing removable.
    #[error("the whiteout names no file")]
    Whiteout,
    /// A device number out of Linux's range.
    #[error("device {0}:{1} is out of range (major below 4096, minor below 1048576)")]
    DeviceNumber(u32, u32),
    /// Nanoseconds of a billion or more.
    #[error("a modification time with {0} nanoseconds")]
    Nanoseconds(u32),
    /// An attribute in a namespace without an EROFS index.
    #[error("extended attribute \"{0}\" has a namespace not supported by EROFS")]
    XattrName(String),
    /// One attribute, or all of a file's together, are too large.
    #[error("extended attributes of {0} bytes are larger than {max}", max = limits::MAX_XATTR_BYTES)]
    XattrTooLarge(usize),
}

/// A failure to write an image.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output failed.
    #[error("writing the image failed")]
    Output(#[source] io::Error),
    /// A file's content lies outside its blob, or not at a block boundary.
    #[error("data blob {blob} has no {length} bytes at {offset}")]
    Extent {
        /// Number of the blob.
        blob: usize,
        /// Byte offset of the content.
        offset: u64,
        /// Bytes of the content.
        length: u64,
    },
    /// More than 2^32 blocks of 4 KiB.
    #[error("the image would have more than 2^32 blocks")]
    TooLarge,
}
