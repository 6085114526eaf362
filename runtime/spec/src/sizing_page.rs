//! Checks the table of `docs/sizing.md` against the code, and the page's overhead against every limit.

use crate::sizing::{GUEST_OVERHEAD, memory_structs, on_the_node};
use crate::{HandlerConfig, PodSpec, Resources, Shortage, VmBounds};

const PAGE: &str = include_str!("../../../docs/sizing.md");

const MIB: u64 = 1 << 20;

fn pod(limit_mib: u64, overhead_mib: u64) -> PodSpec {
    let memory =
        |mib: u64| Some(Resources { memory_limit_bytes: (mib << 20).cast_signed(), ..Resources::default() });
    PodSpec { resources: memory(limit_mib), overhead: memory(overhead_mib), ..PodSpec::default() }
}

fn handler() -> HandlerConfig {
    HandlerConfig { memory_max: 1 << 40, ..HandlerConfig::default() }
}

#[test]
fn the_table_is_what_the_code_computes() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let mut compared = 0;
    for row in rows.filter(|row| row.len() == 7 && row[2].parse::<u64>().is_ok()) {
        let number = |at: usize| row[at].parse::<u64>().ok();
        // CRI has 0 for no limit.
        let (limit, overhead) = (number(1).unwrap_or(0), number(2).unwrap());
        let cgroup = (limit > 0).then_some(limit + overhead);
        let bounds = VmBounds::of(&pod(limit, overhead), &handler()).unwrap();
        let vm = bounds.within(cgroup.map(|mib| mib * MIB)).boot.memory_bytes;
        let used = on_the_node(vm).div_ceil(MIB);
        let left = (vm - GUEST_OVERHEAD - memory_structs(vm, vm)) / MIB;
        assert_eq!(
            [number(3), number(4), number(5), number(6)],
            [cgroup, Some(vm / MIB), Some(used), Some(left)],
            "{row:?}"
        );
        compared += 1;
    }
    assert_eq!(compared, 5, "the table is read whole");
}

#[test]
fn the_overhead_that_the_page_names_is_enough_for_every_limit() {
    assert!(PAGE.contains("**71 and 2 % of the limit**, and never less than 84,"));
    for limit in 1..=65_536_u64 {
        let overhead = (71 + (2 * limit).div_ceil(100)).max(84);
        let shortage = Shortage::of(&pod(limit, overhead), &handler(), (limit + overhead) * MIB);
        assert_eq!(shortage, None, "{limit}");
    }
}
