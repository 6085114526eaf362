//! Volumes that a guest keeps itself, where the kubelet has them on the node: how they are found there, and how the guest's
//! follow them. The driver decides about a container's mounts (`driver/volumes.rs`).
//!
//! | what | where |
//! |---|---|
//! | a volume in memory, as the node has it | `memory.rs` |
//! | a volume on disk, and its image | `disk.rs` |
//! | parts of volumes, by the node's mounts | `part.rs` |
//! | a version of a published volume, read whole | `published.rs` |
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

/// Bytes of a digest that name a volume: as good as unique among the volumes of a pod.
const NAME_BYTES: usize = 12;

/// Name that a volume has in its guest, by its directory on the node: the one that a later daemon gives it too.
pub(crate) fn name(directory: &Path) -> String {
    let digest = Sha256::digest(directory.as_os_str().as_encoded_bytes());
    digest.iter().take(NAME_BYTES).fold(String::new(), |mut name, byte| {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}
