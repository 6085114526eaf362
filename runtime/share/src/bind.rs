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
