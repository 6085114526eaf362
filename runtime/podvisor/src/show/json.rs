//! JSON for programs, also safe on a terminal: JSON itself escapes only the first set of control characters.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;

use super::escape::is_harmful;

/// Returns the value as JSON over several lines, with a line feed behind it.
pub(crate) fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value).context("writing JSON")?;
    Ok(escaped(&text) + "\n")
}

/// Returns the value as JSON on one line, with a line feed behind it.
pub(crate) fn line(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string(value).context("writing JSON")?;
    Ok(escaped(&text) + "\n")
}

/// Escapes harmful characters in JSON's syntax (RFC 8259, section 7). Outside strings JSON has none but line
/// feeds.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter == '\n' || !is_harmful(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_as_it_was_and_has_no_control_character_meanwhile() {
        let value = serde_json::json!({ "a\u{9b}": ["x\x1b[2J\u{7f}\n", "\u{202e}\u{e0041}", "日本"] });
        for text in [pretty(&value).unwrap(), line(&value).unwrap()] {
            assert!(text.chars().all(|letter| letter == '\n' || !is_harmful(letter)), "{text:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
        assert_eq!(line(&value).unwrap().matches('\n').count(), 1);
    }
}
