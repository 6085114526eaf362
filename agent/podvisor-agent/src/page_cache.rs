//! Shrinks the guest's page cache when the node is short of memory. No data is lost: files are read again,
//! and unwritten data stays.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use agent_container::cgroup::CGROUP_ROOT;
use proto_agent::RECLAIMED_BYTES_MAX;

use crate::proc_figures::bytes;

/// File of the root cgroup. Writing a number of bytes reclaims them (Documentation/admin-guide/cgroup-v2.rst,
/// `memory.reclaim`).
const RECLAIM: &str = "memory.reclaim";
const MEMINFO: &str = "/proc/meminfo";

/// A smaller cache is left alone: it holds the running programs, and they would be read again at once.
const LEAST_BYTES: u64 = 8 << 20;

/// Asks the kernel to reclaim half of the cache; it chooses the pages by their last use. Returns by how many
/// bytes the cache shrank.
pub(crate) fn reclaim_half() -> io::Result<u64> {
    let before = cached()?;
    let Some(wanted) = half(before) else { return Ok(0) };
    let mut file = fs::OpenOptions::new().write(true).open(Path::new(CGROUP_ROOT).join(RECLAIM))?;
    match file.write_all(wanted.to_string().as_bytes()) {
        // The kernel found fewer bytes.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        written => written?,
    }
    Ok(before.saturating_sub(cached()?))
}

/// Bytes of files in memory, as far as the kernel can reclaim them. This excludes files of images (none is in
/// the guest's memory) and of memory volumes (on the lists of other pages).
fn cached() -> io::Result<u64> {
    let meminfo = fs::read_to_string(MEMINFO)?;
    Ok(["Active(file):", "Inactive(file):"].map(|key| bytes(&meminfo, key)).iter().sum())
}

fn half(cached: u64) -> Option<u64> {
    (cached >= LEAST_BYTES).then_some((cached / 2).min(RECLAIMED_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_cache_is_wanted_within_bounds() {
        assert_eq!(half(LEAST_BYTES - 1), None);
        assert_eq!(half(LEAST_BYTES), Some(LEAST_BYTES / 2));
        assert_eq!(half(u64::MAX), Some(RECLAIMED_BYTES_MAX));
    }
}
