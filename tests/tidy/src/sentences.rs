//! Counts what makes comments hard to read: relative words for each thousand words by crate, sentences with more than two of them, and
//! long lines. STYLE.md asks for short sentences, subject first. A count bounds them without forbidding a word. Error texts have none.

use std::collections::BTreeMap;

use crate::Source;

/// Words that begin a clause in a clause.
const RELATIVE: &[&str] = &["who", "which", "that", "what", "whose", "whom"];

/// Most relative words for each thousand words of a crate's comments.
pub const PER_THOUSAND_MAX: usize = 18;

/// Most relative words in one sentence.
const IN_A_SENTENCE_MAX: usize = 2;

/// Longest line with a comment, in columns.
const COLUMNS_MAX: usize = 110;

/// Crates with fewer words are counted, and not held.
const WORDS_MIN: usize = 300;

/// Comments of a crate, without its tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prose {
    /// Words in all.
    pub words: usize,
    /// Relative words among them.
    pub relative: usize,
    /// A line for each sentence with too many.
    pub nested: Vec<String>,
    /// A line for each long line.
    pub long: Vec<String>,
}

/// Counts the comments of all crates that have a folder of their own in one of the first two levels.
#[must_use]
pub fn count(sources: &[Source]) -> BTreeMap<String, Prose> {
    let mut crates: BTreeMap<String, Prose> = BTreeMap::new();
    for source in sources.iter().filter(|source| is_product(&source.path)) {
        let name = source.path.split('/').take(2).collect::<Vec<_>>().join("/");
        add(crates.entry(name).or_default(), source);
    }
    crates
}

/// A table for people, the most nested first.
#[must_use]
pub fn table(crates: &BTreeMap<String, Prose>) -> Vec<String> {
    let mut rows: Vec<_> = crates.iter().map(|(name, prose)| (per_thousand(prose), name, prose)).collect();
    rows.sort_by_key(|(count, name, _)| (std::cmp::Reverse(*count), *name));
    let row = |(count, name, prose): (usize, &String, &Prose)| {
        let Prose { words, nested, long, .. } = prose;
        format!(
            "{count:3} {name}: {words} words, {} nested sentences, {} long lines",
            nested.len(),
            long.len()
        )
    };
    rows.into_iter().map(row).collect()
}

/// One line for each crate with too many relative words, for each nested sentence and for each long line.
#[must_use]
pub fn check(crates: &BTreeMap<String, Prose>) -> Vec<String> {
    let mut breaches = Vec::new();
    for (name, prose) in crates {
        let count = per_thousand(prose);
        if count > PER_THOUSAND_MAX && prose.words >= WORDS_MIN {
            breaches.push(format!(
                "{name}: {count} relative words per thousand, more than {PER_THOUSAND_MAX}: say it in short sentences"
            ));
        }
        breaches.extend(prose.nested.iter().chain(&prose.long).cloned());
    }
    breaches
}

/// One line for each error text with a relative word.
#[must_use]
pub fn check_errors(source: &Source) -> Vec<String> {
    let joined = crate::quotes::joined(&source.text);
    let texts = joined.lines().filter_map(|line| line.trim_start().strip_prefix("#[error(\""));
    let texts = texts.map(|line| line.replace("\\\"", "'").split('"').next().unwrap_or_default().to_owned());
    let wrong = texts.filter(|text| relative(&without_names(text)) > 0);
    wrong
        .map(|text| format!("{}: the error text {text:?} has a clause: say it in two", source.path))
        .collect()
}

fn is_product(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_test =
        path.split('/').any(|part| part == "tests") || name == "testing.rs" || name.ends_with("tests.rs");
    !is_test && !path.starts_with("tests/")
}

fn per_thousand(prose: &Prose) -> usize {
    1000 * prose.relative / prose.words.max(1)
}

fn add(prose: &mut Prose, source: &Source) {
    let mut sentence = String::new();
    for (at, line) in source.text.lines().enumerate() {
        let Some(text) = comment(line) else {
            end(prose, &mut sentence, &source.path, at);
            continue;
        };
        prose.words += words(text).count();
        prose.relative += relative(text);
        if line.chars().count() > COLUMNS_MAX {
            prose.long.push(format!("{}:{}: a comment over {COLUMNS_MAX} columns", source.path, at + 1));
        }
        if text.trim().is_empty() || text.trim_start().starts_with(['-', '*', '|', '#']) {
            end(prose, &mut sentence, &source.path, at);
        }
        for part in text.split_inclusive(['.', ';', ':', '?', '!']) {
            sentence.push_str(part);
            if part.ends_with(['.', ';', ':', '?', '!']) {
                end(prose, &mut sentence, &source.path, at + 1);
            }
        }
        sentence.push(' ');
    }
}

/// The words of a comment's line; none for code.
fn comment(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']))
}

fn end(prose: &mut Prose, sentence: &mut String, path: &str, line: usize) {
    if relative(sentence) > IN_A_SENTENCE_MAX {
        prose.nested.push(format!("{path}:{line}: a sentence with {} relative words", relative(sentence)));
    }
    sentence.clear();
}

fn relative(text: &str) -> usize {
    words(text).filter(|word| RELATIVE.contains(&word.as_str())).count()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphabetic() && letter != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// A format's text without the names in its braces.
fn without_names(text: &str) -> String {
    let parts = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn relative_words_are_counted_by_crate_and_tests_are_not() {
        let sources = [
            source("a/one/src/lib.rs", "//! The one that waits.\nlet which = 1;\n    // What is left.\n"),
            source("a/one/tests/x.rs", "// which that what\n"),
            source("tests/e2e/src/lib.rs", "// which that what\n"),
            source("a/one/src/tests.rs", "// which that what\n"),
        ];
        let crates = count(&sources);
        let expected = Prose { words: 7, relative: 2, ..Prose::default() };
        assert_eq!(crates, BTreeMap::from([("a/one".to_owned(), expected)]));
        // Too few words to judge by.
        assert!(check(&crates).is_empty());
        let many = "// The one which waits here.\n".repeat(100);
        assert_eq!(check(&count(&[source("a/two/src/lib.rs", &many)])).len(), 1);
    }

    #[test]
    fn nested_sentences_and_long_lines_are_found() {
        let nested = "// What waits for\n// that which\n// comes. Then\n// that\n\n// Which one.\n";
        let crates = count(&[source("a/one/src/lib.rs", nested)]);
        assert_eq!(crates["a/one"].nested, ["a/one/src/lib.rs:3: a sentence with 3 relative words"]);
        let long = format!("// {}\nlet x = \"{}\";\n", "word ".repeat(22), "x".repeat(200));
        assert_eq!(count(&[source("a/one/src/lib.rs", &long)])["a/one"].long.len(), 1);
    }

    #[test]
    fn an_error_text_has_no_clause_and_may_have_any_name() {
        let text = "    #[error(\"cannot open {what}: {}\", .who)]\n    #[error(\"a file that is \\\n        gone\")]\n";
        assert_eq!(check_errors(&source("x.rs", text)).len(), 1);
    }
}
