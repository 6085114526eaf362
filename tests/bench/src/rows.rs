//! The rows of the line-up, and their table.

use std::time::Duration;

use crate::figures::millions;

/// Set in a software node with an instruction-counting clock.
const COUNTED: &str = "PODVISOR_NODE_ICOUNT";

/// The row to compare all others with.
pub(crate) const YARDSTICK: &str = "runc run";

/// The mark of a VMM's answer after a restore: the VM runs.
pub(crate) const RESTORED: &str = "the VM runs";

/// The mark of an agent's readiness.
pub(crate) const AGENT: &str = "the agent's first answer";

/// From so many starts on, the 99th percentile differs from the longest.
const PERCENTILE_FROM: usize = 100;

/// Starts of one kind, from the request up to one mark.
#[derive(Debug)]
pub(crate) struct Row {
    how: String,
    mark: &'static str,
    took: Vec<Duration>,
}

impl Row {
    pub(crate) fn new(how: impl Into<String>, mark: &'static str, mut took: Vec<Duration>) -> Row {
        let how = how.into();
        // Progress for a waiting user: the table comes last.
        eprintln!("bench: {how}, up to {mark}, is measured");
        took.sort_unstable();
        Row { how, mark, took }
    }

    fn median(&self) -> Duration {
        self.took[self.took.len() / 2]
    }

    /// The 99th percentile by its nearest rank, or the longest of few.
    fn worst(&self) -> Duration {
        let count = self.took.len();
        let rank = if count < PERCENTILE_FROM { count } else { (count * 99).div_ceil(100) };
        self.took[rank - 1]
    }
}

/// Prints the rows with their ratios to [`YARDSTICK`], in millions of instructions if the clock counts them,
/// otherwise in milliseconds.
pub(crate) fn print(rows: &[Row]) {
    let counted = std::env::var_os(COUNTED).is_some_and(|counted| counted != "0");
    let (unit, of): (_, fn(Duration) -> f64) = match counted {
        true => ("millions of instructions", millions),
        false => ("milliseconds", |took| took.as_secs_f64() * 1e3),
    };
    let yardstick = rows.iter().find(|row| row.how == YARDSTICK).map(Row::median);
    let most = rows.iter().map(|row| row.took.len()).max().unwrap_or_default();
    let worst = if most < PERCENTILE_FROM { "most" } else { "99 %" };
    let width = rows.iter().map(|row| row.how.len()).max().unwrap_or_default();
    println!("bench: up to {most} starts of each, alone where nothing else is said, in {unit}");
    println!(
        "bench: {:<width$} {:<28} {:>8} {worst:>8} {:>14}",
        "what starts", "up to", "median", "over runc run"
    );
    for row in rows {
        let ratio = yardstick
            .map_or("?".to_owned(), |yardstick| format!("{:.2}", row.median().div_duration_f64(yardstick)));
        println!(
            "bench: {:<width$} {:<28} {:>8.1} {:>8.1} {ratio:>14}",
            row.how,
            row.mark,
            of(row.median()),
            of(row.worst())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(starts: u64) -> Row {
        Row::new("a start", "its end", (1..=starts).rev().map(Duration::from_millis).collect())
    }

    #[test]
    fn the_worst_of_few_is_the_longest_and_of_many_the_99th_percentile() {
        assert_eq!((row(5).median(), row(5).worst()), (Duration::from_millis(3), Duration::from_millis(5)));
        assert_eq!(row(99).worst(), Duration::from_millis(99));
        assert_eq!(row(100).worst(), Duration::from_millis(99));
        assert_eq!(row(200).worst(), Duration::from_millis(198));
    }
}
