//! The memory of a VMM by purpose, from its mappings (proc_pid_smaps(5)).

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::Context;

/// A large page of the node, in bytes.
const LARGE_PAGE: u64 = 2 << 20;

/// Memory of one VMM, or of several, in KiB of proportional set size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmmMemory {
    /// The guest's RAM.
    pub(crate) ram: u64,
    /// Images mapped by the guest.
    pub(crate) images: u64,
    /// The program and its libraries, as far as they are as on the disk.
    pub(crate) program: u64,
    /// Heap, stacks, and written pages of the program.
    pub(crate) private: u64,
    /// All resident memory, shared or not.
    pub(crate) rss: u64,
}

impl VmmMemory {
    pub(crate) fn of(pid: u32) -> anyhow::Result<VmmMemory> {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).context("reading smaps")?;
        Ok(mappings(&smaps).iter().map(|(_, memory)| *memory).fold(VmmMemory::default(), |mut sum, one| {
            sum += one;
            sum
        }))
    }

    /// Private memory of a VMM by the names of its mappings, the largest first.
    pub(crate) fn private_by_name(pid: u32) -> anyhow::Result<Vec<(String, u64)>> {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).context("reading smaps")?;
        let mut sums = BTreeMap::new();
        for (name, memory) in mappings(&smaps) {
            *sums.entry(name).or_insert(0) += memory.private;
        }
        let mut sums: Vec<_> = sums.into_iter().filter(|(_, kib)| *kib > 0).collect();
        sums.sort_by_key(|(_, kib)| std::cmp::Reverse(*kib));
        Ok(sums)
    }

    /// Proportional set size in KiB.
    pub(crate) fn pss(&self) -> u64 {
        self.ram + self.images + self.program + self.private
    }
}

impl AddAssign for VmmMemory {
    fn add_assign(&mut self, other: VmmMemory) {
        self.ram += other.ram;
        self.images += other.images;
        self.program += other.program;
        self.private += other.private;
        self.rss += other.rss;
    }
}

/// Names of the mappings, and their contents.
fn mappings(smaps: &str) -> Vec<(String, VmmMemory)> {
    let mut found: Vec<(u64, String, Vec<&str>)> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            // The first line of a mapping: addresses, access, offset, device, inode, name.
            Some(word) if word.contains('-') => {
                let start = word.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
                let name = words.nth(4).unwrap_or("anonymous").to_owned();
                found.push((start.unwrap_or(0), name, Vec::new()));
            }
            _ => found.last_mut().into_iter().for_each(|(_, _, lines)| lines.push(line)),
        }
    }
    let memory =
        |(start, name, lines): (u64, String, Vec<&str>)| (name.clone(), memory(start, &name, &lines));
    found.into_iter().map(memory).collect()
}

fn memory(start: u64, name: &str, lines: &[&str]) -> VmmMemory {
    let field = |key: &str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0)
    };
    let flags = lines.iter().find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or("");
    let (pss, anonymous) = (field("Pss:"), field("Pss_Anon:").max(field("Anonymous:")));
    let mut memory = VmmMemory { rss: field("Rss:"), ..VmmMemory::default() };
    // The VMM requests large pages only for RAM, and not for large pages partly given back. The kernel sets
    // the latter flag on stacks, too. They do not begin at a large page.
    let has = |wanted| flags.split_whitespace().any(|flag| flag == wanted);
    if has("hg") || has("nh") && start.is_multiple_of(LARGE_PAGE) || name.contains("podvisor-template") {
        memory.ram = pss;
    } else if [".erofs", "podvisor-root-image", "/images/"].iter().any(|of| name.contains(of)) {
        memory.images = pss;
    } else {
        memory.private = anonymous.min(pss);
        memory.program = pss - memory.private;
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0008000000 rw-p 00000000 00:00 0 
Size:             131072 kB
Rss:               47104 kB
Pss:               47104 kB
Anonymous:         47104 kB
VmFlags: rd wr mr mw me ac sd hg 
7f0008000000-7f0008200000 rw-p 00000000 00:00 0 
Rss:                 100 kB
Pss:                 100 kB
Anonymous:           100 kB
VmFlags: rd wr mr mw me ac sd nh 
7f0008201000-7f0008401000 rw-p 00000000 00:00 0 
Rss:                  12 kB
Pss:                  12 kB
Anonymous:            12 kB
VmFlags: rd wr mr mw me ac nh 
7f000a000000-7f000a200000 rw-p 00200000 00:01 2    /memfd:podvisor-template (deleted)
Rss:                 900 kB
Pss:                 300 kB
Anonymous:           200 kB
VmFlags: rd wr mr mw me ac sd nr 
7f0010000000-7f0010100000 r--s 00000000 00:01 3    /memfd:podvisor-root-image (deleted)
Rss:                4000 kB
Pss:                 200 kB
Anonymous:             0 kB
VmFlags: rd mr me ms 
55d000000000-55d000100000 r-xp 00000000 fe:00 13   /usr/bin/podvisor-vmm
Rss:                1000 kB
Pss:                  60 kB
Anonymous:             8 kB
VmFlags: rd ex mr mw me 
55d000200000-55d000300000 rw-p 00000000 00:00 0    [heap]
Rss:                 400 kB
Pss:                 400 kB
Anonymous:           400 kB
VmFlags: rd wr mr mw me ac 
";

    #[test]
    fn mappings_are_distinguished_by_their_flags_and_names() {
        let mut sum = VmmMemory::default();
        mappings(SMAPS).into_iter().for_each(|(_, memory)| sum += memory);
        assert_eq!(sum, VmmMemory { ram: 47504, images: 200, program: 52, private: 420, rss: 53516 });
        assert_eq!(sum.pss(), 47504 + 200 + 60 + 412);
    }
}
