//! Logs of counting containers: `line 1`, `line 2`, …, to detect lost, doubled or torn lines.

/// Most bytes of one chunk of output. If a daemon is killed between a chunk's write and its acknowledgement,
/// the chunk is written again (docs/output.md).
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The lines of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Numbers found.
    pub count: usize,
    /// Number of repetitions, each of at most a chunk of lines.
    pub again: usize,
}

/// Counts the lines of a log. Its first line has the number `first`.
///
/// # Errors
/// The first torn or unexpected line, as a message.
pub fn lines(log: &str, first: usize) -> Result<Lines, String> {
    let (mut next, mut lines) = (first, Lines::default());
    for entry in log.lines() {
        let number = number(entry).ok_or_else(|| format!("in the place of line {next} is {entry:?}"))?;
        if number > next {
            return Err(format!("lines from {next} are lost: {entry:?} is next"));
        }
        if number < next {
            lines.again += 1;
            if number < first || (next - number) * (entry.len() + 1) > CHUNK_BYTES_MAX {
                return Err(format!("{entry:?} after line {}: more than a chunk", next - 1));
            }
        }
        next = number + 1;
        lines.count = lines.count.max(next - first);
    }
    Ok(lines)
}

/// The number of an entry with one complete line.
fn number(entry: &str) -> Option<usize> {
    let parts: Vec<_> = entry.split(' ').collect();
    let [_, "stdout", "F", "line", number] = parts[..] else { return None };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(numbers: &[usize]) -> String {
        numbers.iter().map(|number| format!("T stdout F line {number}\n")).collect()
    }

    #[test]
    fn a_chunk_that_comes_again_is_counted() {
        assert_eq!(lines(&log(&[1, 2, 3]), 1), Ok(Lines { count: 3, again: 0 }));
        assert_eq!(lines(&log(&[0, 1, 2, 1, 2, 3, 3]), 0), Ok(Lines { count: 4, again: 2 }));
        assert_eq!(lines(&log(&[1, 2, 3, 2]), 1), Ok(Lines { count: 3, again: 1 }));
        assert_eq!(lines("", 1), Ok(Lines::default()));
    }

    #[test]
    fn a_line_that_is_lost_or_torn_and_more_than_a_chunk_is_wrong() {
        let many: Vec<_> = (1..=10_000).chain([1]).collect();
        for wrong in
            [log(&[2]), log(&[1, 3]), log(&[1, 0]), log(&many), "T stdout P li\nT stdout F ne 1\n".into()]
        {
            assert!(lines(&wrong, 1).is_err(), "{wrong:.60}");
        }
    }
}
