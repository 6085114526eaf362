//! Volumes kept by a guest itself: how they are found in the kubelet's directories on the node, and how the
//! guest's copies follow them. The driver decides about a container's mounts (`driver/volumes.rs`).
//!
//! | subject | where |
//! |---|---|
//! | a volume in memory on the node | `memory.rs` |
//! | a volume on disk, and its image | `disk.rs` |
//! | parts of volumes, by the node's mounts | `part.rs` |
//! | a version of a published volume, read as a whole | `published.rs` |
//! | the node's mounts change | `mount_changes.rs` |
//! | a published volume gets another version | `directory_changes.rs` |
//! | a pod's volumes follow the node's | `keeper.rs` |

pub(crate) mod directory_changes;
pub(crate) mod disk;
pub(crate) mod keeper;
pub(crate) mod memory;
pub(crate) mod mount_changes;
pub(crate) mod part;
pub(crate) mod published;
mod reactor;

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes of a digest used as a volume's name: as good as unique among the volumes of a pod.
const NAME_BYTES: usize = 12;

/// Name of a volume in its guest, derived from its directory on the node: a later daemon derives the same.
pub(crate) fn name(directory: &Path) -> String {
    let digest = Sha256::digest(directory.as_os_str().as_encoded_bytes());
    digest.iter().take(NAME_BYTES).fold(String::new(), |mut name, byte| {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}
