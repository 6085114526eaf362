//! Limits as files of a container's cgroup (v2) in the guest, and the values to write. The module is pure;
//! the agent writes. The kernel documents the files in Documentation/admin-guide/cgroup-v2.rst.

use std::collections::BTreeMap;

use crate::sizing::{CPU_PERIOD, positive};
use crate::{Resources, SpecError};

/// CPU shares of cgroup v1 (`MIN_SHARES`, `MAX_SHARES` in the kernel's `kernel/sched/sched.h`).
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// Microseconds accepted by the kernel for a period, and the least for a quota (`kernel/sched/core.c`,
/// `tg_set_cfs_bandwidth`).
const PERIOD: std::ops::RangeInclusive<u64> = 1000..=1_000_000;

/// Controllers with files allowed in `unified`.
const CONTROLLERS: [&str; 7] = ["cpu", "cpuset", "hugetlb", "io", "memory", "misc", "pids"];

/// Longest name of a cgroup file and longest value, in bytes: far above any controller's.
const NAME_BYTES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 4096;

impl Resources {
    /// Files and values for these limits. Unset ones have none. The names in `unified` win. An idle container
    /// has no weight.
    ///
    /// # Errors
    /// The kernel would refuse a value. The error names its field.
    pub fn cgroup_files(&self) -> Result<BTreeMap<String, String>, SpecError> {
        let mut files = BTreeMap::new();
        let mut put = |file: &str, value: Option<String>| {
            if let Some(value) = value {
                files.insert(file.to_owned(), value);
            }
        };
        let shares = positive(Some(self.cpu_shares)).filter(|_| !self.is_idle());
        put("cpu.weight", shares.map(|shares| weight(shares).to_string()));
        put("cpu.max", cpu_max(self)?);
        put("memory.max", limit(self.memory_limit_bytes));
        put("memory.swap.max", swap_max(self)?);
        put("pids.max", limit(self.pids_limit));
        for (file, value) in &self.unified {
            check_file(file, value)?;
            files.insert(file.clone(), value.clone());
        }
        Ok(files)
    }

    /// Returns true if `unified` makes the container idle. The kernel then refuses any weight
    /// (`sched_group_set_shares`, kernel/sched/fair.c).
    fn is_idle(&self) -> bool {
        self.unified.get("cpu.idle").is_some_and(|value| value.trim() == "1")
    }

    /// Swap allowed by these limits, in bytes; `None` if they do not bound it.
    pub fn swap_max_bytes(&self) -> Option<u64> {
        // The limits were checked when they came.
        self.cgroup_files().ok()?.get("memory.swap.max")?.trim().parse().ok()
    }
}

/// Swap in bytes allowed to these containers together; `None` without a container, or if one of them is not
/// bounded.
pub fn swap_together<'a>(containers: impl IntoIterator<Item = &'a Resources>) -> Option<u64> {
    let each = containers.into_iter().map(Resources::swap_max_bytes);
    each.reduce(|sum, next| Some(sum?.saturating_add(next?))).flatten()
}

/// A number, or no limit. Zero means unset.
fn limit(value: i64) -> Option<String> {
    match value {
        0 => None,
        ..0 => Some("max".to_owned()),
        1.. => Some(value.to_string()),
    }
}

fn cpu_max(resources: &Resources) -> Result<Option<String>, SpecError> {
    let period = positive(Some(resources.cpu_period)).unwrap_or(CPU_PERIOD);
    if resources.cpu_quota == 0 && resources.cpu_period == 0 {
        return Ok(None);
    }
    if !PERIOD.contains(&period) {
        let reason = format!("{period} is beyond {} to {} microseconds", PERIOD.start(), PERIOD.end());
        return Err(SpecError::invalid("resources.cpu_period", reason));
    }
    match positive(Some(resources.cpu_quota)) {
        Some(quota) if quota < *PERIOD.start() => {
            let reason = format!("{quota} is below {} microseconds", PERIOD.start());
            Err(SpecError::invalid("resources.cpu_quota", reason))
        }
        Some(quota) => Ok(Some(format!("{quota} {period}"))),
        None => Ok(Some(format!("max {period}"))),
    }
}

/// CRI's limit covers memory and swap together, the kernel's only swap.
fn swap_max(resources: &Resources) -> Result<Option<String>, SpecError> {
    const FIELD: &str = "resources.memory_swap_limit_in_bytes";
    let both = resources.memory_swap_limit_bytes;
    match (both, resources.memory_limit_bytes) {
        (0, _) => Ok(None),
        (..0, _) => Ok(Some("max".to_owned())),
        (_, ..=0) => Err(SpecError::invalid(FIELD, "needs a limit of memory as well")),
        (_, memory) if both < memory => {
            Err(SpecError::invalid(FIELD, format!("{both} is less than the limit of memory, {memory}")))
        }
        (_, memory) => Ok(Some((both - memory).to_string())),
    }
}

/// cgroup v2's weight (1..=10000, 100 by default) for v1's shares. The curve goes through the least, default
/// and most of both. Container runtimes have shared it since 2025 (opencontainers/runc pull request 4785, for
/// kubernetes issue 131216). The straight line before it gave one CPU's share a weight of 39.
fn weight(shares: u64) -> u64 {
    if shares <= *SHARES.start() {
        return 1;
    }
    if shares >= *SHARES.end() {
        return 10_000;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    // Subtracts a little, because the last bits of a float may exceed a whole number, such as the default.
    let weight = (10f64.powf(exponent) - 1e-9).ceil();
    (weight as u64).clamp(1, 10_000)
}

fn check_file(file: &str, value: &str) -> Result<(), SpecError> {
    const FIELD: &str = "resources.unified";
    let refuse = |reason: &str| Err(SpecError::invalid(FIELD, format!("{:?} {reason}", shortened(file))));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let controller = file.split_once('.').map(|(controller, _)| controller);
    let known = controller.is_some_and(|name| CONTROLLERS.contains(&name));
    if file.len() > NAME_BYTES_MAX || !file.bytes().all(plain) || file.contains("..") || !known {
        return refuse("is no file of a cgroup v2 controller");
    }
    if value.len() > VALUE_BYTES_MAX || value.contains('\0') {
        return refuse("has an overlong value, or one with a NUL byte");
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_fit_least_default_and_most_and_the_curve_between() {
        // The values of runc's own test.
        for (shares, expected) in [(1, 1), (2, 1), (1024, 100), (262_144, 10_000), (1 << 40, 10_000)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
        // A tenth of a CPU, half a CPU, four CPUs.
        assert_eq!([102, 512, 4096].map(weight), [17, 59, 303]);
    }

    proptest! {
        #[test]
        fn more_shares_never_weigh_less(shares in 0u64..300_000, more in 0u64..300_000) {
            prop_assert!(weight(shares) <= weight(shares + more));
        }
    }
}
