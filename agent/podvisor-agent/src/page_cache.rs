//! The guest's page cache, which the node takes back when it is short of memory. Nothing is lost by that: what a file has is read
//! again, and what is not written yet stays.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use agent_container::cgroup::CGROUP_ROOT;

use crate::proc_figures::bytes;

/// The file of the root cgroup that takes a number of bytes to reclaim (Documentation/admin-guide/cgroup-v2.rst, `memory.reclaim`).
const RECLAIM: &str = "memory.reclaim";
const MEMINFO: &str = "/proc/meminfo";

/// A cache of fewer bytes is left alone: the programs that run are in it, and would be read again at once.
const LEAST_BYTES: u64 = 8 << 20;

/// Most bytes of one call, which holds up its programs meanwhile.
const MOST_BYTES: u64 = 512 << 20;

/// Asks the kernel for half of the cache, whose pages it chooses by their last use, and returns how many bytes smaller the cache is.
pub(crate) fn reclaim_half() -> io::Result<u64> {
    let before = cached()?;
    let Some(wanted) = half(before) else { return Ok(0) };
    let mut file = fs::OpenOptions::new().write(true).open(Path::new(CGROUP_ROOT).join(RECLAIM))?;
    match file.write_all(wanted.to_string().as_bytes()) {
        // The kernel has found fewer.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        written => written?,
    }
    Ok(before.saturating_sub(cached()?))
}

/// Bytes of files in memory that the kernel can reclaim. Files of images are in none of its memory, and files of memory volumes on the
/// lists of other pages.
fn cached() -> io::Result<u64> {
    let meminfo = fs::read_to_string(MEMINFO)?;
    Ok(["Active(file):", "Inactive(file):"].map(|key| bytes(&meminfo, key)).iter().sum())
}

fn half(cached: u64) -> Option<u64> {
    (cached >= LEAST_BYTES).then_some((cached / 2).min(MOST_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_cache_is_wanted_within_bounds() {
        assert_eq!(half(LEAST_BYTES - 1), None);
        assert_eq!(half(LEAST_BYTES), Some(LEAST_BYTES / 2));
        assert_eq!(half(u64::MAX), Some(MOST_BYTES));
    }
}
