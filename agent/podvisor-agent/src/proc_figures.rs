//! Values in files of `/proc` with lines like `MemTotal:  1024 kB`.

/// Returns the value of the line starting with `key`, in bytes, or 0 if it is missing.
pub(crate) fn bytes(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|value| value.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .unwrap_or(0)
        .saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_become_bytes() {
        let text = "MemTotal:       2048 kB\nMemFree:  1 kB\n";
        assert_eq!(bytes(text, "MemTotal:"), 2 * 1024 * 1024);
        assert_eq!(bytes(text, "MemAvailable:"), 0);
    }
}
