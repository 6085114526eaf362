//! A host path to bind, and how: access, propagation and owners. Plain values, without any logic.

use std::path::PathBuf;

/// A path of the host to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// A directory or a regular file; links are followed, as the host sees them.
    pub source: PathBuf,
    /// Whether the guest may write.
    pub access: Access,
    /// Whether later mounts of the host follow.
    pub propagation: Propagation,
    /// The owners that the guest sees; `None` where the files' own are shown.
    pub owners: Option<Owners>,
}

/// A mapping of owners: the ids of a user namespace, shown as the ids that they have outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// The mapping of users.
    pub uids: Ids,
    /// The mapping of groups.
    pub gids: Ids,
}

/// A mapping of the ids from 0 on, as the file system has them. Files of ids beyond show the kernel's overflow id, and
/// new files of other owners are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id that 0 is shown as; the others follow.
    pub shown_as: u32,
    /// The number of ids.
    pub length: u32,
}

/// Whether the guest may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The guest may write as far as the host's own mount allows.
    ReadWrite,
    /// The guest may not write to the bound filesystem itself, but to filesystems mounted below as far as they allow.
    ReadOnly,
    /// The guest may write nowhere below the path.
    ReadOnlyRecursive,
}

/// Whether the guest sees mounts that the host makes below the source later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The guest sees only what is mounted there now.
    Private,
    /// The guest sees later mounts of the host.
    HostToContainer,
}
