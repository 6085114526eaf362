//! Texts of a guest, cut before they reach logs, records and clients.

/// Most characters of a refusal that are kept. An agent's own errors are a line.
pub(crate) const REFUSAL_CHARS_MAX: usize = 4096;

/// The text without control characters, and with so many characters at most.
pub(crate) fn printable(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}
