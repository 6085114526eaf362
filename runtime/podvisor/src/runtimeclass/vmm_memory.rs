//! A VMM's memory on the node beside its guest's RAM, as the node's kernel counts it.
//!
//! | part | where |
//! |---|---|
//! | the program, heap, stacks, buffers | `/proc/<pid>/smaps`, without the RAM and without shared images |
//! | page tables, vCPUs, threads, sockets | `memory.stat` of its own cgroup, or else `/proc/<pid>/status` |
//! | the console and other memory files | `memory.stat` of the VMM's cgroup |

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Mount point of cgroup v2.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Mappings without a file from this size on are the guest's RAM, in bytes. A VM has at least twice as much,
/// and a thread's stack or a heap much less.
const RAM_MIN: u64 = 32 << 20;

/// Memory of one VMM, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VmmMemory {
    /// The process's own pages.
    pub(super) resident_bytes: u64,
    /// The node's kernel for it.
    pub(super) kernel_bytes: u64,
    /// Whether the kernel's part is complete. For a VMM without its own cgroup, it has only the page tables.
    pub(super) kernel_is_whole: bool,
}

impl VmmMemory {
    /// Reads the values of this pod's VMM.
    ///
    /// # Errors
    /// The process is gone, or is another user's.
    pub(super) fn read(pid: u32, pod_id: &str) -> anyhow::Result<VmmMemory> {
        let proc = PathBuf::from("/proc").join(pid.to_string());
        let text = |name: &str| {
            let path = proc.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {} (are you root?)", path.display()))
        };
        let resident_bytes = beside_ram(&text("smaps")?);
        let stat = own_cgroup(&text("cgroup")?, pod_id)
            .and_then(|path| fs::read_to_string(Path::new(CGROUPS).join(path).join("memory.stat")).ok());
        Ok(match stat {
            Some(stat) => {
                VmmMemory { resident_bytes, kernel_bytes: kernel_of_cgroup(&stat), kernel_is_whole: true }
            }
            None => {
                let kernel_bytes = field(&text("status")?, "VmPTE:");
                VmmMemory { resident_bytes, kernel_bytes, kernel_is_whole: false }
            }
        })
    }

    /// All of it.
    pub(super) fn total_bytes(&self) -> u64 {
        self.resident_bytes.saturating_add(self.kernel_bytes)
    }
}

/// Resident bytes of all mappings but the guest's RAM and shared files (proc_pid_smaps(5)).
fn beside_ram(smaps: &str) -> u64 {
    let (mut bytes, mut counts) = (0_u64, false);
    let mut ram_candidate = false;
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            counts = !mapping.is_shared;
            ram_candidate = mapping.is_unnamed && mapping.length >= RAM_MIN;
        } else if counts && !ram_candidate && line.starts_with("Rss:") {
            bytes = bytes.saturating_add(field(line, "Rss:"));
        }
    }
    bytes
}

/// The head of a mapping in smaps: `start-end perms offset dev inode path`.
struct Mapping {
    length: u64,
    is_shared: bool,
    is_unnamed: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let length = address(end)?.saturating_sub(address(start)?);
        let is_shared = fields.next()?.ends_with('s');
        Some(Mapping { length, is_shared, is_unnamed: fields.nth(3).is_none() })
    }
}

/// The pod's cgroup below the mount, if only the VMM is in it: it has the pod's id in its name. The process
/// is in its child `vm`, or in itself for a pod of an earlier version.
fn own_cgroup(cgroups: &str, pod_id: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = path.strip_suffix("/vm").unwrap_or(path);
    let is_own = !pod_id.is_empty() && path.rsplit('/').next()?.contains(pod_id);
    is_own.then(|| PathBuf::from(path))
}

/// The kernel's memory for a cgroup, and memory files. `kernel` exists since Linux 5.18, and is the sum of
/// the other lines.
fn kernel_of_cgroup(stat: &str) -> u64 {
    let value = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let parts = || ["slab", "kernel_stack", "pagetables", "percpu"].map(|name| value(name).unwrap_or(0));
    let kernel = value("kernel").unwrap_or_else(|| parts().into_iter().fold(0, u64::saturating_add));
    kernel.saturating_add(value("shmem").unwrap_or(0))
}

/// The value of a line such as `Rss:   12 kB`, in bytes; 0 when absent.
fn field(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0a00000-55d0c0b00000 r-xp 00000000 fe:01 77                         /usr/bin/podvisor-vmm
Size:               1024 kB
Rss:                 700 kB
Pss:                 100 kB
7f0000000000-7f0008000000 rw-p 00000000 00:00 0
Size:             131072 kB
Rss:               40960 kB
7f0010000000-7f0010800000 r--s 00000000 fe:01 78                         /guest/root.erofs
Rss:                5000 kB
7f0020000000-7f0020200000 rw-p 00000000 00:00 0
Rss:                  60 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  40 kB
VmFlags: rd wr mr mw me gd ac
";

    #[test]
    fn neither_the_guests_ram_nor_an_image_is_the_vmms() {
        assert_eq!(beside_ram(SMAPS), (700 + 60 + 40) * 1024);
        assert_eq!(beside_ram(""), 0);
        assert_eq!(beside_ram("garbage\nRss: 4 kB\n-\n"), 0);
    }

    #[test]
    fn a_cgroup_that_is_not_the_pods_is_not_counted() {
        let id = "ab12";
        assert_eq!(own_cgroup("0::/podvisor/podvisor-ab12\n", id), Some("podvisor/podvisor-ab12".into()));
        assert_eq!(own_cgroup("0::/podvisor/podvisor-ab12/vm\n", id), Some("podvisor/podvisor-ab12".into()));
        assert_eq!(own_cgroup("0::/system.slice/podvisor.service/vm\n", id), None);
        assert_eq!(own_cgroup("0::/system.slice/podvisor.service\n", id), None);
        assert_eq!(own_cgroup("4:memory:/podvisor/podvisor-ab12\n", id), None);
        assert_eq!(own_cgroup("0::/podvisor/podvisor-ab12\n", ""), None);
    }

    #[test]
    fn the_kernels_memory_is_counted_once_by_old_kernels_too() {
        let new = "anon 9\nkernel 100\nslab 60\npagetables 30\nshmem 5\n";
        assert_eq!(kernel_of_cgroup(new), 105);
        assert_eq!(kernel_of_cgroup("slab 60\nslab_reclaimable 50\nkernel_stack 7\npagetables 30\n"), 97);
    }

    #[test]
    fn this_process_is_read() {
        let memory = VmmMemory::read(std::process::id(), "no-pod").unwrap();
        assert!(
            memory.resident_bytes > 0 && memory.kernel_bytes > 0 && !memory.kernel_is_whole,
            "{memory:?}"
        );
        assert!(VmmMemory::read(5_000_000, "no-pod").is_err());
    }
}
