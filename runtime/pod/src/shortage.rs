//! Whether the node is short of memory. If so, no spares are made, and guests give back cached memory.

use std::fs;

/// Threshold of memory shortage: percentage of time stalled on memory, over ten seconds.
const STALLED_PERCENT: f64 = 5.0;

/// Divisor of the node's memory: memory is short if less than this part, one sixteenth, is available without
/// reclaiming memory in use.
const AVAILABLE_PART: u64 = 16;

/// Divisor of the node's memory: stalls say nothing if more than this part, a quarter, is available. The
/// kernel counts a cgroup at a limit of its own as stalled, too, and that must not cost others their caches.
const STALLED_PART: u64 = 4;

/// Whether memory is short. If the kernel gives no answer, it counts as enough.
pub(crate) fn is_short() -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    is_short_by(&read("/proc/pressure/memory"), &read("/proc/meminfo"))
}

fn is_short_by(pressure: &str, meminfo: &str) -> bool {
    is_used_up(meminfo, AVAILABLE_PART) || (stalls(pressure) && is_used_up(meminfo, STALLED_PART))
}

/// `some avg10=…` of a pressure file (Documentation/accounting/psi.rst).
fn stalls(pressure: &str) -> bool {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let average = some.and_then(|fields| fields.split(' ').find_map(|field| field.strip_prefix("avg10=")));
    average.and_then(|text| text.parse::<f64>().ok()).is_some_and(|percent| percent >= STALLED_PERCENT)
}

/// Whether less than this part of the memory is available (proc_meminfo(5)). Huge pages in pools are never
/// available and nobody's cache, so they do not count.
fn is_used_up(meminfo: &str, part: u64) -> bool {
    let figure = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let pools = figure("Hugetlb").unwrap_or(0);
    match (figure("MemAvailable"), figure("MemTotal")) {
        (Some(available), Some(total)) => available < total.saturating_sub(pools) / part,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_where_little_is_left_or_work_stalls_for_the_rest() {
        let pressure = |avg10| {
            format!(
                "some avg10={avg10} avg60=0.00 avg300=0.00 total=9\nfull avg10=90.00 avg60=0.00 avg300=0.00 total=1\n"
            )
        };
        assert!(stalls(&pressure("5.01")) && !stalls(&pressure("4.99")) && !stalls(""));
        let memory =
            |available| format!("MemTotal: 1600 kB\nMemFree: 1 kB\nMemAvailable:   {available} kB\n");
        let short = |avg10, available| is_short_by(&pressure(avg10), &memory(available));
        assert!(short("0.00", 99) && !short("0.00", 100));
        assert!(short("20.00", 399) && !short("4.99", 399));
        assert!(!short("20.00", 1400), "one pod at its own limit");
        let with_pools = |available| format!("{}Hugetlb:  1200 kB\n", memory(available));
        assert!(!is_short_by("", &with_pools(25)) && is_short_by("", &with_pools(24)));
        assert!(
            !is_short_by(&pressure("20.00"), &with_pools(100))
                && is_short_by(&pressure("20.00"), &with_pools(99))
        );
        assert!(!is_short_by(&pressure("20.00"), "") && is_short_by("", &memory(99)));
    }
}
