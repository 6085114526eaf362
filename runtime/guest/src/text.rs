//! Texts of a guest, cut before they reach logs, records and clients.

/// Most characters kept of a refusal. An agent's own errors are a line.
pub(crate) const REFUSAL_CHARS_MAX: usize = 4096;

/// Returns the text without control characters, cut to `chars_max` characters.
pub(crate) fn printable(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}
