//! Markdown, as far as the checks read it: lines of prose, targets of links, and anchors of headings.
//!
//! An anchor is the heading's text in lower case: its letters and digits, with hyphens for spaces. A further
//! heading with the same text gets a number. GitHub and the book (`docs/book.toml`) have this rule in common.

use std::collections::BTreeSet;
use std::iter;

/// Deepest level of a heading.
const LEVEL_MAX: usize = 6;

/// Lines outside code blocks, with their numbers.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        (!fence && !in_block).then_some((index + 1, line))
    })
}

/// Targets of the links in a line.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Pieces of code in a line.
pub(crate) fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Anchors of a page's headings, in their order.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut used = BTreeSet::new();
    prose(text).filter_map(|(_, line)| heading(line)).map(|heading| unique(heading, &mut used)).collect()
}

/// The text of a heading; `None` for other lines.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=LEVEL_MAX).contains(&level).then(|| text.strip_prefix(' ')).flatten().map(str::trim)
}

/// The heading's anchor, with a number if it is in use.
fn unique(heading: &str, used: &mut BTreeSet<String>) -> String {
    let first = anchor(heading);
    let numbered = (1..).map(|number| format!("{first}-{number}"));
    let mut all = iter::once(first.clone()).chain(numbered);
    let free = all.find(|anchor| !used.contains(anchor)).expect("numbers have no end");
    used.insert(free.clone());
    free
}

fn anchor(heading: &str) -> String {
    // Only the text of a link counts.
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = |part: &str| part.split_once(')').map_or(part.to_owned(), |(_, rest)| rest.to_owned());
    let text = parts.fold(first, |text, part| text + &rest(part));
    let letters = text.chars().flat_map(char::to_lowercase).filter_map(|letter| match letter {
        ' ' => Some('-'),
        _ if letter.is_alphanumeric() || letter == '-' || letter == '_' => Some(letter),
        _ => None,
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_the_headings_letters_with_hyphens_for_spaces() {
        let page = "# Some `code`, it's here\n## I/O & `a_b`\n### `[[handler]]`\n## See [its page](b.md#x) too\n## Über 2 - 3\n";
        assert_eq!(
            anchors(page),
            ["some-code-its-here", "io--a_b", "handler", "see-its-page-too", "über-2---3"]
        );
    }

    #[test]
    fn a_further_heading_with_the_same_text_gets_a_number() {
        assert_eq!(anchors("# Log\n## `[log]`\n## Log 1\n## Log\n"), ["log", "log-1", "log-1-1", "log-2"]);
    }

    #[test]
    fn other_lines_are_no_headings() {
        assert_eq!(anchors("#one\n####### seven\n text # x\n```\n# a comment\n```\n"), [""; 0]);
    }
}
