//! Copies of the programs, in memory. The node's file tree is the host's. While the node is idle, the clock
//! leaps to the next timer: a wait for a file would count as millions of instructions.

use anyhow::{Context, anyhow};
use tempfile::TempDir;
use tests_e2e::built::Built;

/// Copies our programs and the guest image into a directory in memory. From then on, all temporary files of
/// this process are there.
pub(crate) fn stage(built: &Built) -> anyhow::Result<(TempDir, Built)> {
    let dir = tempfile::Builder::new().prefix("podvisor-bench-").tempdir_in("/dev/shm")?;
    let memory = dir.path();
    for name in ["podvisor", "podvisor-vmm"] {
        std::fs::copy(built.bin.join(name), memory.join(name)).with_context(|| format!("copying {name}"))?;
    }
    for name in ["vmlinux", "root.erofs", "scratch.ext4", "volume.ext4"] {
        std::fs::copy(built.guest_image.join(name), memory.join(name))
            .with_context(|| format!("copying {name}"))?;
    }
    // The host's directory, too: a path through the node's file tree is a wait for the host.
    let set = tempfile::env::override_temp_dir(memory);
    set.map_err(|other| anyhow!("temporary files are in {} already", other.display()))?;
    let built = Built { bin: memory.to_owned(), guest_image: memory.to_owned() };
    Ok((dir, built))
}
