//! What is bound, and how.

use std::path::PathBuf;

/// A path of the host to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// A directory or a regular file; links are followed, as the host sees them.
    pub source: PathBuf,
    /// Who may write.
    pub access: Access,
    /// Which mounts follow.
    pub propagation: Propagation,
    /// Whose the files are shown as; none where they are shown as they are.
    pub owners: Option<Owners>,
}

/// How owners are shown: as the users and groups that a user namespace's are outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// Users.
    pub uids: Ids,
    /// Groups.
    pub gids: Ids,
}

/// The ids from 0 on, as the file system has them. What is beyond them is nobody's, and new files of other
/// owners are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// What 0 is shown as; the others follow it.
    pub shown_as: u32,
    /// How many.
    pub length: u32,
}

/// Whether the guest may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As far as the host's own mount lets it.
    ReadWrite,
    /// Not to the bound filesystem itself; to filesystems mounted below it as far as they let it.
    ReadOnly,
    /// Nowhere below.
    ReadOnlyRecursive,
}

/// Whether mounts that the host makes below the source later are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// No; what is mounted there now is.
    Private,
    /// Yes.
    HostToContainer,
}
