//! Resource wishes, as CRI's LinuxContainerResources has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Resource wishes. Zero and empty mean "not asked", as in CRI; the values are told back as they came.
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
