//! Escapes texts for a terminal. Names, messages and annotations come from images, guests and their authors.
//! A terminal would obey their control characters. Characters without a width, and changes of the text's
//! direction, would mislead the reader. They become escapes in the syntax of Rust and JSON. Pure.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the text as one harmless line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    replace(text, is_harmful)
}

/// Returns the text as harmless lines: line feeds stay.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |letter| letter != '\n' && is_harmful(letter))
}

/// Whether a terminal would obey the character or show something misleading: control characters of both sets
/// (C0, C1), separators of lines, characters without a width, and changes of the direction (Unicode, UAX #9).
pub(crate) fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn replace(text: &str, harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\n' if harmful(letter) => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            _ if harmful(letter) => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(letter));
            }
            _ => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(line("a\x1b[2Jb\x07\u{9b}31m\x7f"), "a\\u{1b}[2Jb\\u{7}\\u{9b}31m\\u{7f}");
        assert_eq!(line("one\r\ntwo\tthree"), "one\\r\\ntwo\\tthree");
        assert_eq!(lines("one\ntwo\x1bc"), "one\ntwo\\u{1b}c");
    }

    #[test]
    fn what_would_show_another_text_is_escaped() {
        assert_eq!(line("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(line("pay\u{200b}pal\u{feff}"), "pay\\u{200b}pal\\u{feff}");
        assert_eq!(line("a\u{2028}b\u{e0041}"), "a\\u{2028}b\\u{e0041}");
    }

    #[test]
    fn names_of_all_languages_stay_as_they_are() {
        for text in ["nginx", "größe", "日本語", "back\\slash", ""] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }
}
