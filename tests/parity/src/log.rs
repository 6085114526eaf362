//! Reads a CRI log file: lines of time, stream, `F` or `P`, and text. Pure.

/// The output of one stream, put together of its whole and partial lines.
pub(crate) fn stream(log: &str, name: &str) -> String {
    let mut output = String::new();
    for line in log.lines() {
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some(stream), Some(kind)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if stream != name {
            continue;
        }
        output.push_str(parts.next().unwrap_or_default());
        if kind == "F" {
            output.push('\n');
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_lines_are_one_line_and_streams_are_apart() {
        let log = "t stdout P one \nt stderr F bad\nt stdout F two\n";
        assert_eq!(stream(log, "stdout"), "one two\n");
        assert_eq!(stream(log, "stderr"), "bad\n");
    }
}
