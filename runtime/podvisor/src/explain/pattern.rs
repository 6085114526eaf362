//! Compares a text with a quoted error, in which `…` stands for what differs each time. Pure.

use std::cmp::Reverse;

/// An error with fewer fixed bytes fits too many texts.
const FIXED_BYTES_MIN: usize = 10;

/// An error without a variable part may be shorter, if it is a word of its own in the text: `OOMKilled`.
const WORD_BYTES_MIN: usize = 8;

/// Where in a text an error is, then how much of it is fixed: the earliest comes first, and of those the
/// longest.
pub(super) type Place = (usize, Reverse<usize>);

/// Returns the place of an error in a line made [`plain`].
pub(super) fn place(error: &str, line: &str) -> Option<Place> {
    if !is_distinctive(error) {
        return None;
    }
    let (mut start, mut from) = (None, 0);
    for part in parts(error) {
        let rest = line.get(from..)?;
        let at = from + if is_word(error) { word(rest, part)? } else { rest.find(part)? };
        start.get_or_insert(at);
        from = at + part.len();
    }
    Some((start?, Reverse(fixed(error))))
}

/// Whether enough of an error is fixed.
fn is_distinctive(error: &str) -> bool {
    fixed(error) >= FIXED_BYTES_MIN || is_word(error)
}

/// Whether an error is short, and looked for as a word of its own.
fn is_word(error: &str) -> bool {
    !error.contains('…') && (WORD_BYTES_MIN..FIXED_BYTES_MIN).contains(&error.len())
}

/// The place of a word that is not a part of a longer one.
fn word(line: &str, word: &str) -> Option<usize> {
    let ends = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let is_whole =
        |at: &usize| ends(line[..*at].chars().next_back()) && ends(line[*at + word.len()..].chars().next());
    line.match_indices(word).map(|(at, _)| at).find(is_whole)
}

fn fixed(error: &str) -> usize {
    parts(error).map(str::len).sum()
}

fn parts(error: &str) -> impl Iterator<Item = &str> {
    error.split('…').filter(|part| !part.is_empty())
}

/// A line with single spaces, and without the backslashes of a log's JSON before its quotes.
pub(super) fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_parts_are_found_in_their_order() {
        let found = |error, line| place(error, &plain(line));
        assert_eq!(
            found("cannot open …: it is gone", "x: cannot open /a: it is  gone"),
            Some((3, Reverse(24)))
        );
        assert_eq!(found("cannot open …: it is gone", ": it is gone; cannot open /a"), None);
        assert_eq!(
            found("handler \"…\" is there twice", r#"handler \"vm\" is there twice"#),
            Some((0, Reverse(25)))
        );
    }

    #[test]
    fn an_error_of_which_too_little_is_fixed_is_none() {
        assert_eq!(place("… is no …", "this is no error"), None);
        assert_eq!(place("…", "anything"), None);
        assert_eq!(place("Error", "Reason: Error"), None);
    }

    #[test]
    fn a_short_error_is_found_as_a_word_of_its_own() {
        let found = |line| place("OOMKilled", line).map(|(at, _)| at);
        assert_eq!(found("OOMKilled"), Some(0));
        assert_eq!(found("NotOOMKilled, Reason: OOMKilled, Exit Code: 137"), Some(22));
        assert_eq!(found("OOMKilledTwice"), None);
    }
}
