//! How long the node's processors had nothing to do.

use std::time::Duration;

use anyhow::Context;

/// Ticks of `/proc/stat` in a second (`USER_HZ`, linux/param.h).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the idle time since the node's start, including waits for a disk, of all processors together
/// (proc_stat(5), `cpu`).
pub(crate) fn node_idle() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = idle_ticks(&stat).context("/proc/stat names no idle time")?;
    Ok(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
}

fn idle_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace().skip(3);
    let (idle, waiting) = (fields.next()?, fields.next()?);
    Some(idle.parse::<u64>().ok()? + waiting.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_all_processors_with_waits_for_disks() {
        let stat = "cpu  1 2 3 400 50 6 7 0 0 0\ncpu0 1 2 3 40 5 6 7 0 0 0\n";
        assert_eq!(idle_ticks(stat), Some(450));
        assert_eq!(idle_ticks("cpu  1 2 3\n"), None);
    }
}
