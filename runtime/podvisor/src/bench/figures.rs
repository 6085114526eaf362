//! Percentiles of measured pods. Pure.

use serde::Serialize;

use crate::show::table::Column;
use crate::show::units;

/// The table's columns. Times are in milliseconds: half of the pods take at most p50, and 99 of 100 at most
/// p99.
pub(super) const COLUMNS: [Column; 9] = [
    Column::whole("HANDLER"),
    Column::figure("PODS"),
    Column::figure("START p50"),
    Column::figure("p99"),
    Column::figure("EXEC p50"),
    Column::figure("p99"),
    Column::figure("STOP p50"),
    Column::figure("p99"),
    Column::figure("MEMORY"),
];

/// One measured pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) start_ms: f64,
    pub(super) exec_ms: f64,
    pub(super) stop_ms: f64,
    pub(super) memory_bytes: Option<u64>,
}

/// The figures of a handler.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    handler: String,
    pods: usize,
    /// From RunPodSandbox to the answer of StartContainer.
    start_ms: Percentiles,
    /// One ExecSync.
    exec_ms: Percentiles,
    /// StopPodSandbox and RemovePodSandbox.
    stop_ms: Percentiles,
    /// The median of the pods' memory on the node. `None` if no runtime reports any.
    memory_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Figures {
    pub(super) fn of(handler: &str, rounds: &[Round]) -> Figures {
        let times = |of: fn(&Round) -> f64| Percentiles::of(rounds.iter().map(of).collect());
        let mut memory: Vec<u64> = rounds.iter().filter_map(|round| round.memory_bytes).collect();
        memory.sort_unstable();
        Figures {
            handler: handler.to_owned(),
            pods: rounds.len(),
            start_ms: times(|round| round.start_ms),
            exec_ms: times(|round| round.exec_ms),
            stop_ms: times(|round| round.stop_ms),
            memory_bytes: memory.get(memory.len() / 2).copied(),
        }
    }

    /// The cells of the table.
    pub(super) fn row(&self) -> Vec<String> {
        let handler = if self.handler.is_empty() { "(default)" } else { &self.handler };
        let mut row = vec![handler.to_owned(), self.pods.to_string()];
        for times in [self.start_ms, self.exec_ms, self.stop_ms] {
            row.extend([times.p50, times.p99].map(|time| format!("{time:.1}")));
        }
        row.push(self.memory_bytes.map_or("-".into(), units::bytes));
        row
    }
}

impl Percentiles {
    fn of(mut times: Vec<f64>) -> Percentiles {
        times.sort_by(f64::total_cmp);
        // The least time that so many of a hundred do not exceed.
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Percentiles { p50: at(50), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let of = |times: &[f64]| Percentiles::of(times.to_vec());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Percentiles { p50: 2.0, p99: 3.0 });
        assert_eq!(of(&[7.0]), Percentiles { p50: 7.0, p99: 7.0 });
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(of(&hundred), Percentiles { p50: 50.0, p99: 99.0 });
    }

    #[test]
    fn a_row_has_milliseconds_and_a_pod_without_memory_is_passed_over() {
        let round = |ms, memory_bytes| Round { start_ms: ms, exec_ms: 1.0, stop_ms: 2.5, memory_bytes };
        let figures = Figures::of("", &[round(10.0, None), round(30.0, Some(10 << 20))]);
        let row = ["(default)", "2", "10.0", "30.0", "1.0", "1.0", "2.5", "2.5", "10MiB"];
        assert_eq!(figures.row(), row);
        assert_eq!(Figures::of("runc", &[round(1.0, None)]).row().last().unwrap(), "-");
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["startMs"]["p99"], 30.0);
    }
}
