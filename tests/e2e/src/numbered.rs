//! Logs of containers that count: `line 1`, `line 2`, …, by which a line that is lost, doubled or torn is seen.

/// Counts the lines of a log.
///
/// # Errors
/// The first line that is not the whole line of its number.
pub fn lines(log: &str) -> Result<usize, String> {
    let mut lines = 0;
    for (line, number) in log.lines().zip(1..) {
        if !line.ends_with(&format!("stdout F line {number}")) {
            return Err(format!("line {number} is {line:?}"));
        }
        lines = number;
    }
    Ok(lines)
}
