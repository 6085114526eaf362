//! A host path to bind, with its access, propagation and owners. Plain values without logic.

use std::path::PathBuf;

/// A host path to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// A directory or a regular file. Links are followed as on the host.
    pub source: PathBuf,
    /// Refuse a missing source. Otherwise it is created as a directory.
    pub must_exist: bool,
    /// The guest's write access.
    pub access: Access,
    /// Whether later mounts of the host are visible in the guest.
    pub propagation: Propagation,
    /// The mapping of owners for the guest. `None` shows the files' own owners.
    pub owners: Option<Owners>,
}

/// A mapping of owners: the ids of a user namespace, shown as their ids outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// The mapping of users.
    pub uids: Ids,
    /// The mapping of groups.
    pub gids: Ids,
}

/// A mapping of ids in the file system, from 0. Files of ids beyond it show the kernel's overflow id. New
/// files of other owners are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id shown for 0; the others follow.
    pub shown_as: u32,
    /// The number of ids.
    pub length: u32,
}

/// The guest's write access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The guest may write as far as the host's own mount allows.
    ReadWrite,
    /// The guest may not write to the bound filesystem itself. Filesystems mounted below keep their own
    /// access.
    ReadOnly,
    /// The guest may write nowhere below the path.
    ReadOnlyRecursive,
}

/// Whether the guest sees later mounts of the host below the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The guest sees only the present mounts.
    Private,
    /// The guest sees later mounts of the host.
    HostToContainer,
}
