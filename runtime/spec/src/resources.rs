//! Resource requests, as in CRI's LinuxContainerResources. `cgroup.rs` turns them into files of the guest,
//! `ledger.rs` into the size of the VM.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SpecError;

/// Most CPUs of a Linux host (`NR_CPUS` of x86).
const CPUS_MAX: u32 = 8192;

/// Resource requests. Zero and empty mean "not requested", as in CRI. Statuses return the values unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Relative weight, cgroup v1 scale (2..=262144).
    pub cpu_shares: i64,
    /// Microseconds per period; negative for no limit.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes; negative for no limit.
    pub memory_limit_bytes: i64,
    /// Memory and swap together, bytes; negative for no limit.
    pub memory_swap_limit_bytes: i64,
    /// Most processes; negative for no limit.
    pub pids_limit: i64,
    /// List format ("0-2,7").
    pub cpuset_cpus: String,
    /// List format.
    pub cpuset_mems: String,
    /// -1000..=1000.
    pub oom_score_adj: i64,
    /// cgroup v2 files and their values.
    pub unified: BTreeMap<String, String>,
    /// Limits by page size.
    pub hugepages: Vec<Hugepages>,
}

/// Limit for one size of huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hugepages {
    /// "2MB", "1GB".
    pub page_size: String,
    /// Bytes.
    pub limit_bytes: u64,
}

impl Resources {
    /// These requests, changed by `update`. Its unset fields change nothing (CRI's UpdateContainerResources).
    /// The OOM score stays: processes have it from their start. A new memory limit also replaces the limit of
    /// memory and swap together, because the old one may be below it.
    #[must_use]
    pub fn merged(&self, update: &Resources) -> Resources {
        let number = |old: i64, new: i64| if new == 0 { old } else { new };
        let swap = match update.memory_swap_limit_bytes {
            0 if self.memory_swap_limit_bytes != 0 => update.memory_limit_bytes,
            asked => asked,
        };
        let list = |old: &String, new: &String| if new.is_empty() { old.clone() } else { new.clone() };
        let mut unified = self.unified.clone();
        unified.extend(update.unified.clone());
        let mut hugepages = self.hugepages.clone();
        for limit in &update.hugepages {
            match hugepages.iter_mut().find(|known| known.page_size == limit.page_size) {
                Some(known) => known.clone_from(limit),
                None => hugepages.push(limit.clone()),
            }
        }
        Resources {
            cpu_shares: number(self.cpu_shares, update.cpu_shares),
            cpu_quota: number(self.cpu_quota, update.cpu_quota),
            cpu_period: number(self.cpu_period, update.cpu_period),
            memory_limit_bytes: number(self.memory_limit_bytes, update.memory_limit_bytes),
            memory_swap_limit_bytes: number(self.memory_swap_limit_bytes, swap),
            pids_limit: number(self.pids_limit, update.pids_limit),
            cpuset_cpus: list(&self.cpuset_cpus, &update.cpuset_cpus),
            cpuset_mems: list(&self.cpuset_mems, &update.cpuset_mems),
            oom_score_adj: self.oom_score_adj,
            unified,
            hugepages,
        }
    }

    /// Refuses values that are invalid or impossible in a guest.
    ///
    /// # Errors
    /// The error names the field.
    pub fn check(&self) -> Result<(), SpecError> {
        let score = self.oom_score_adj;
        if !(-1000..=1000).contains(&score) {
            let reason = format!("{score} is beyond -1000..=1000");
            return Err(SpecError::invalid("resources.oom_score_adj", reason));
        }
        // The kubelet sends a limit of zero for every page size of its node.
        if let Some(limit) = self.hugepages.iter().find(|limit| limit.limit_bytes > 0) {
            let what = format!(
                "{} bytes of huge pages of {} (a guest reserves none) are",
                limit.limit_bytes, limit.page_size
            );
            return Err(SpecError::unsupported("resources.hugepage_limits", what));
        }
        cpu_list("resources.cpuset_cpus", &self.cpuset_cpus)?;
        cpu_list("resources.cpuset_mems", &self.cpuset_mems)?;
        self.cgroup_files().map(drop)
    }

    /// The container's CPUs of the node. Empty for all.
    ///
    /// # Errors
    /// The text is no list.
    pub fn cpus(&self) -> Result<Vec<u32>, SpecError> {
        cpu_list("resources.cpuset_cpus", &self.cpuset_cpus)
    }
}

/// CPUs of the node named by these containers together, in order. Empty without a container, or if one of
/// them names none: it may run on all.
pub fn cpus_together<'a>(containers: impl IntoIterator<Item = &'a Resources>) -> Vec<u32> {
    let mut all = Vec::new();
    for resources in containers {
        // The specs were checked when they came.
        match resources.cpus() {
            Ok(cpus) if !cpus.is_empty() => all.extend(cpus),
            _ => return Vec::new(),
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The kernel's list format: "0-2,7" (`bitmap_parselist`, lib/bitmap-str.c), without its strides.
fn cpu_list(field: &'static str, text: &str) -> Result<Vec<u32>, SpecError> {
    let wrong = || {
        SpecError::invalid(
            field,
            format!("{:?} is no list of CPUs", text.chars().take(64).collect::<String>()),
        )
    };
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|&n| n < CPUS_MAX);
        let (Some(first), Some(last)) = (number(first), number(last)) else { return Err(wrong()) };
        if first > last {
            return Err(wrong());
        }
        all.extend(first..=last);
        // Otherwise repeated ranges would accumulate.
        all.sort_unstable();
        all.dedup();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_update_leaves_unset_stays() {
        let old = Resources {
            cpu_shares: 512,
            cpu_quota: 50_000,
            memory_limit_bytes: 64 << 20,
            cpuset_cpus: "0-1".into(),
            oom_score_adj: 7,
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
            hugepages: vec![Hugepages { page_size: "2MB".into(), limit_bytes: 0 }],
            ..Resources::default()
        };
        assert_eq!(old.merged(&Resources::default()), old);
        let update = Resources {
            memory_limit_bytes: -1,
            cpuset_cpus: "3".into(),
            oom_score_adj: 900,
            unified: [("memory.high".to_owned(), "max".to_owned())].into(),
            hugepages: vec![Hugepages { page_size: "2MB".into(), limit_bytes: 5 }],
            ..Resources::default()
        };
        let new = old.merged(&update);
        assert_eq!((new.cpu_shares, new.cpu_quota, new.memory_limit_bytes), (512, 50_000, -1));
        assert_eq!((new.cpuset_cpus.as_str(), new.oom_score_adj), ("3", 7));
        assert_eq!((new.unified.len(), new.hugepages.len(), new.hugepages[0].limit_bytes), (2, 1, 5));
    }

    #[test]
    fn a_new_limit_of_memory_takes_that_of_swap_along() {
        let limit = |memory, swap| Resources {
            memory_limit_bytes: memory,
            memory_swap_limit_bytes: swap,
            ..Resources::default()
        };
        for (before, asked, after) in [
            (limit(10, 10), limit(20, 0), limit(20, 20)),
            (limit(10, 0), limit(20, 0), limit(20, 0)),
            (limit(10, 10), limit(20, 30), limit(20, 30)),
            (limit(10, 10), limit(0, 0), limit(10, 10)),
        ] {
            assert_eq!(before.merged(&asked), after);
        }
    }

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_does() {
        let cpus = |text: &str| Resources { cpuset_cpus: text.into(), ..Resources::default() }.cpus();
        assert_eq!(cpus("").unwrap(), [0; 0]);
        assert_eq!(cpus("0-2,7,1").unwrap(), [0, 1, 2, 7]);
        for bad in ["x", "3-1", "-1", "0-8192", "1-", "0:2"] {
            assert!(cpus(bad).unwrap_err().to_string().contains("resources.cpuset_cpus"), "{bad}");
        }
    }
}
