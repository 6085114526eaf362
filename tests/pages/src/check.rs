//! Compares pages and rows: each block of commands has its row, each row its block, and named tests exist.

use std::collections::BTreeMap;

use crate::block::{Block, blocks};
use crate::row::{ROWS, Row};
use crate::script::{find, script, transcript};

/// Reads a file by its path from the repository's root, if it exists.
pub type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One line for each breach, with the remedy. `pages` are all pages, by path from the repository's root.
#[must_use]
pub fn check(pages: &BTreeMap<String, String>, rows: &[Row], read: Read<'_>) -> Vec<String> {
    let of_pages = pages.iter().flat_map(|(path, text)| check_page(path, text, rows, read));
    of_pages.chain(rows.iter().flat_map(|row| check_row(row, pages, read))).collect()
}

fn check_page(path: &str, text: &str, rows: &[Row], read: Read<'_>) -> Vec<String> {
    let makefile = read("Makefile").unwrap_or_default();
    let mut breaches = Vec::new();
    for block in blocks(text) {
        let at = format!("{path}:{}", block.line);
        if block.language.is_empty() {
            breaches.push(format!(
                "{at}: a block without a language: write sh or console behind the fence of commands, text behind others"
            ));
        }
        let of_block = |row: &&Row| row.page == path && find(row, text).is_ok_and(|found| found == block);
        match rows.iter().filter(of_block).count() {
            0 if block.is_pasted() => breaches.push(format!(
                "{at}: no row of {ROWS} is for this block: add one, with the test that runs it or the reason why none does"
            )),
            0 | 1 => {}
            count => breaches.push(format!("{at}: {count} rows of {ROWS} are for this block: leave one")),
        }
        let targets = commands(&block).into_iter().filter_map(made);
        let missing = targets.filter(|target| !makefile.contains(&format!("\n{target}:")));
        breaches.extend(missing.map(|target| format!("{at}: the Makefile has no target {target}")));
    }
    breaches
}

fn check_row(row: &Row, pages: &BTreeMap<String, String>, read: Read<'_>) -> Vec<String> {
    let at = format!("{ROWS}: {}, {:?}", row.page, row.begins);
    let block = pages.get(&row.page).map(|text| find(row, text));
    let mut breaches = match block {
        None => vec![format!("{at}: no page {}: correct the row, or remove it", row.page)],
        Some(Err(error)) => vec![format!("{at}: {error}: correct the row, or remove it with its block")],
        Some(Ok(block)) => {
            script(row, &block).err().map(|error| format!("{at}: {error}")).into_iter().collect()
        }
    };
    let Row { run_by, covered_by, not_run, before, after, change, .. } = row;
    let ways = [run_by.is_some(), covered_by.is_some(), not_run.is_some()];
    if ways.into_iter().filter(|way| *way).count() != 1 {
        breaches.push(format!("{at}: a row has one of run_by, covered_by and not_run"));
    }
    if run_by.is_none() && !(before.is_empty() && after.is_empty() && change.is_empty()) {
        breaches.push(format!("{at}: before, change and after are for a block with run_by"));
    }
    if change.iter().any(|change| change.why.is_empty()) || not_run.as_deref() == Some("") {
        breaches.push(format!("{at}: a reason is empty"));
    }
    for named in run_by.iter().chain(covered_by.iter().flatten()) {
        let (file, name) = named.split_once(' ').unwrap_or((named.as_str(), ""));
        let text = read(file).unwrap_or_default();
        if !has_word(&text, name) {
            breaches.push(format!("{at}: {file} has no {name:?}"));
        }
        if run_by.is_some() && !text.contains(&format!("{:?}", row.begins)) {
            breaches.push(format!("{at}: {file} does not take this block"));
        }
    }
    breaches
}

/// The lines with commands.
fn commands(block: &Block) -> Vec<&str> {
    match block.language.as_str() {
        "sh" => block.text.lines().collect(),
        "console" => transcript(&block.text).into_iter().map(|(command, _)| command).collect(),
        _ => Vec::new(),
    }
}

/// The target of a call of make.
fn made(command: &str) -> Option<&str> {
    command.strip_prefix("make ")?.split_whitespace().next()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_end =
        |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
    let mut places = text.match_indices(word).filter(|_| !word.is_empty());
    places.any(|(at, _)| {
        is_end(text[..at].chars().next_back()) && is_end(text[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Change;

    const PAGE: &str = "# H\n```sh\nmake all\n```\n```text\nart\n```\n";

    fn row() -> Row {
        Row {
            page: "a.md".into(),
            heading: "H".into(),
            begins: "make".into(),
            run_by: Some("tests/x.rs it_is_made".into()),
            ..Row::default()
        }
    }

    fn found(page: &str, rows: &[Row]) -> Vec<String> {
        let read = |path: &str| match path {
            "tests/x.rs" => Some("async fn it_is_made() { paste(\"a.md\", \"make\") }".into()),
            "tests/x/run" => Some("check it_holds".into()),
            "Makefile" => Some(".PHONY: all\nall: b\n".into()),
            _ => None,
        };
        check(&[("a.md".to_owned(), page.to_owned())].into(), rows, &read)
    }

    #[test]
    fn a_block_with_a_row_and_a_row_with_a_block_are_no_breach() {
        assert_eq!(found(PAGE, &[row()]), Vec::<String>::new());
        let covered = Row { run_by: None, covered_by: Some(vec!["tests/x/run it_holds".into()]), ..row() };
        assert_eq!(found(PAGE, &[covered]), Vec::<String>::new());
    }

    #[test]
    fn a_block_without_a_language_or_a_row_is_found() {
        let lines = found("# H\n```\nls\n```\n```sh\nmake none\n```\n", &[]);
        let starts = [
            "a.md:2: a block without a language",
            "a.md:5: no row of",
            "a.md:5: the Makefile has no target none",
        ];
        assert!(
            lines.len() == 3 && starts.iter().zip(&lines).all(|(start, line)| line.starts_with(start)),
            "{lines:?}"
        );
        assert!(found(PAGE, &[row(), row()])[0].starts_with("a.md:2: 2 rows"));
    }

    #[test]
    fn a_row_without_a_block_or_a_test_is_found() {
        let has = |row: Row, text: &str| {
            let lines = found(PAGE, &[row]);
            assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:?}");
        };
        has(Row { page: "b.md".into(), ..row() }, "no page b.md");
        has(Row { heading: "Other".into(), ..row() }, "no block of a.md below \"Other\"");
        has(Row { run_by: Some("tests/x.rs it_is".into()), ..row() }, "tests/x.rs has no \"it_is\"");
        has(Row { begins: "make a".into(), ..row() }, "tests/x.rs does not take this block");
        has(
            Row { covered_by: Some(vec!["tests/x/run it".into()]), run_by: None, ..row() },
            "tests/x/run has no \"it\"",
        );
        has(Row { not_run: Some("why".into()), ..row() }, "one of run_by, covered_by and not_run");
        has(
            Row { not_run: Some("why".into()), run_by: None, after: "ls".into(), ..row() },
            "for a block with run_by",
        );
        let change =
            |from: &str, why: &str| vec![Change { from: from.into(), to: "b".into(), why: why.into() }];
        has(Row { change: change("IMAGE", "why"), ..row() }, "\"IMAGE\" to be changed is not there");
        has(Row { change: change("all", ""), ..row() }, "a reason is empty");
    }
}
