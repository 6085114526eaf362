//! Copies of what runs, in memory. The node's file tree is the host's, and while nobody computes, the clock leaps to the next timer:
//! a wait for a file would count as millions of instructions.

use std::path::Path;

use anyhow::Context;
use tests_e2e::built::Built;

/// Copies our programs and what a guest boots from into a directory in memory.
pub(crate) fn stage(built: &Built, memory: &Path) -> anyhow::Result<Built> {
    for name in ["podvisor", "podvisor-vmm"] {
        std::fs::copy(built.bin.join(name), memory.join(name)).with_context(|| format!("copying {name}"))?;
    }
    for name in ["vmlinux", "root.erofs", "scratch.ext4", "volume.ext4"] {
        std::fs::copy(built.guest_image.join(name), memory.join(name))
            .with_context(|| format!("copying {name}"))?;
    }
    Ok(Built { bin: memory.to_owned(), guest_image: memory.to_owned() })
}
