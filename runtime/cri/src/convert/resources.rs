//! `LinuxContainerResources`, both ways.

use proto_cri::v1;
use runtime_spec::{Hugepages, Resources};

/// Requests as sent. CRI has no limit of processes, so the spec's stays unset.
pub(crate) fn resources_in(resources: v1::LinuxContainerResources) -> Resources {
    Resources {
        cpu_shares: resources.cpu_shares,
        cpu_quota: resources.cpu_quota,
        cpu_period: resources.cpu_period,
        memory_limit_bytes: resources.memory_limit_in_bytes,
        memory_swap_limit_bytes: resources.memory_swap_limit_in_bytes,
        pids_limit: 0,
        cpuset_cpus: resources.cpuset_cpus,
        cpuset_mems: resources.cpuset_mems,
        oom_score_adj: resources.oom_score_adj,
        unified: resources.unified,
        hugepages: resources
            .hugepage_limits
            .into_iter()
            .map(|limit| Hugepages { page_size: limit.page_size, limit_bytes: limit.limit })
            .collect(),
    }
}

/// Requests in the form returned by statuses.
pub(super) fn resources_out(resources: &Resources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit_bytes,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: resources
            .hugepages
            .iter()
            .map(|limit| v1::HugepageLimit { page_size: limit.page_size.clone(), limit: limit.limit_bytes })
            .collect(),
        unified: resources.unified.clone(),
        memory_swap_limit_in_bytes: resources.memory_swap_limit_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_returned_as_they_were_sent() {
        let sent = v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 512,
            memory_limit_in_bytes: 64 << 20,
            oom_score_adj: -5,
            cpuset_cpus: "0-1".into(),
            cpuset_mems: "0".into(),
            hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: 0 }],
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
            memory_swap_limit_in_bytes: 64 << 20,
        };
        assert_eq!(resources_out(&resources_in(sent.clone())), sent);
    }
}
