//! Doc sentences name their subject.
//!
//! A sentence that begins with a pronoun, or with another word that leans on what stands before it, is a breach. So
//! is "What X is" for a noun phrase. Sentences are those of `///` and `//!` comments, outside code blocks, tables and
//! headings; a list's item begins one, and so does a capital after a full stop, a colon or a semicolon.

use crate::Source;

/// Beginnings of a sentence, as whole words. A beginning that ends in `…` counts before one of [`VERBS`] only.
const LEANING: &[&str] = &[
    "It",
    "Its",
    "They",
    "Their",
    "Theirs",
    "Them",
    "He",
    "She",
    "His",
    "Her",
    "We",
    "Our",
    "Ours",
    "You",
    "Your",
    "What",
    "Who",
    "Whose",
    "Whom",
    "Which",
    "Whoever",
    "Whatever",
    "Whichever",
    "The same",
    "Same",
    "The other",
    "The others",
    "The rest",
    "Another",
    "Ditto",
    "Likewise",
    "As above",
    "One of",
    "One that",
    "One is",
    "One may",
    "One who",
    "One which",
    "One in",
    "One with",
    "This …",
    "That …",
    "These …",
    "Those",
];

/// Before these, *this*, *that* and *these* stand for something that the sentence does not name.
const VERBS: &[&str] = &[
    "is", "are", "was", "were", "has", "have", "may", "can", "must", "will", "holds", "goes", "does",
    "takes", "means", "one",
];

/// One line for each doc sentence that does not name its subject.
#[must_use]
pub fn check(source: &Source) -> Vec<String> {
    let mut breaches = Vec::new();
    for (line, paragraph) in paragraphs(&source.text) {
        for sentence in sentences(&paragraph).into_iter().filter(|sentence| leans(sentence)) {
            let beginning: String = sentence.chars().take(60).collect();
            breaches.push(format!("{}:{line}: a doc sentence without its subject: {beginning}", source.path));
        }
    }
    breaches
}

fn leans(sentence: &str) -> bool {
    let begins = |text: &str, with: &str| {
        let rest = text.strip_prefix(with)?;
        (!rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then(|| rest.trim_start().to_owned())
    };
    LEANING.iter().any(|beginning| match beginning.strip_suffix(" …") {
        None => begins(sentence, beginning).is_some(),
        Some(word) => {
            begins(sentence, word).is_some_and(|rest| VERBS.iter().any(|verb| begins(&rest, verb).is_some()))
        }
    })
}

/// The doc comments' paragraphs and list items, each with the line it begins at.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(doc) = doc.filter(|_| !line.starts_with("////")) else {
            (open, fenced) = (false, false);
            continue;
        };
        let doc = doc.strip_prefix(' ').unwrap_or(doc);
        let words = doc.trim();
        if words.starts_with("```") {
            (open, fenced) = (false, !fenced);
        } else if fenced || words.is_empty() || doc.starts_with("    ") || words.starts_with(['|', '#']) {
            open = false;
        } else if let Some(item) = list_item(words) {
            all.push((at + 1, item.to_owned()));
            open = true;
        } else if let (Some((_, paragraph)), true) = (all.last_mut(), open) {
            paragraph.push(' ');
            paragraph.push_str(words);
        } else {
            all.push((at + 1, words.to_owned()));
            open = true;
        }
    }
    all
}

/// Returns what follows a list's mark.
fn list_item(line: &str) -> Option<&str> {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = (digits.len() < line.len()).then(|| digits.strip_prefix(". ")).flatten();
    numbered.or_else(|| line.strip_prefix("- ")).or_else(|| line.strip_prefix("* "))
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = paragraph;
    let mut from = 0;
    while let Some(at) =
        rest[from..].find(". ").into_iter().chain(rest[from..].find(['!', '?', ':', ';'])).min()
    {
        let end = from + at + 1;
        let next = rest[end..].trim_start();
        if next.len() < rest.len() - end && next.starts_with(|c: char| c.is_ascii_uppercase()) {
            all.push(&rest[..end]);
            (rest, from) = (next, 0);
        } else {
            from = end;
        }
    }
    all.push(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Source { path: "a.rs".into(), text: text.into() })
    }

    #[test]
    fn sentences_that_lean_on_what_stands_before_are_found_wherever_they_begin() {
        for text in [
            "//! It owns the slots.",
            "/// What the image is.\nfn f() {}",
            "    /// The slot. It is taken.",
            "/// Two lines, of which\n/// the second ends. They do.",
            "/// - One of them.",
            "/// 2. The same.",
            "/// This is the slot.",
            "/// Returns the slot: Which one is not known.",
            "/// ```text\n/// It is code.\n/// ```\n/// They end here.",
        ] {
            assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
        }
        let two = found("/// Its name.\n///\n/// Those who ask.\n");
        let expected = [
            "a.rs:1: a doc sentence without its subject: Its name.",
            "a.rs:3: a doc sentence without its subject: Those who ask.",
        ];
        assert_eq!(two, expected);
    }

    #[test]
    fn sentences_with_a_subject_code_and_plain_comments_are_no_breach() {
        for text in [
            "//! This module owns the slots; it never frees one.",
            "/// Items, Whole or in parts. Thatch, Itself, One container.",
            "// It is a plain comment.\n//// It is no doc comment.",
            "/// | It | is a table |\n/// # It is a heading",
            "/// ```text\n/// It is code.\n/// ```",
            "/// That answer is kept, e.g. what was asked.",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }
}
