//! Tests that SECURITY.md names are there: each `file::test` is a test of that file, and each row of a table whose last column
//! is "shown by" has one at least. What a test shows is for eyes.

use crate::Source;

/// The page.
pub const PAGE: &str = "SECURITY.md";

/// The heading of the column that names tests.
const COLUMN: &str = "shown by";

/// Lines between a test's attribute and its function, at most: further attributes.
const ATTRIBUTE_LINES_MAX: usize = 3;

/// One line for each test that is not there, and for each row that names none.
#[must_use]
pub fn check(page: &str, sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut in_column = false;
    for (index, line) in page.lines().enumerate() {
        let number = index + 1;
        let named: Vec<_> = named(line).collect();
        let missing = named.iter().filter(|(path, test)| !is_there(path, test, sources));
        breaches.extend(missing.map(|(path, test)| format!("{PAGE}:{number}: no test {test} in {path}")));
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            in_column = false;
        } else if cells.last() == Some(&COLUMN) {
            in_column = true;
        } else if in_column && named.is_empty() && !line.starts_with("|--") {
            breaches.push(format!("{PAGE}:{number}: no test shows {:?}", cells[0]));
        }
    }
    breaches
}

/// Pieces of code in a line that name a test, as file and function.
pub fn named(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = line.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::")).filter(|(path, _)| path.ends_with(".rs"))
}

fn is_there(path: &str, test: &str, sources: &[Source]) -> bool {
    let Some(source) = sources.iter().find(|source| source.path == path) else { return false };
    let lines: Vec<&str> = source.text.lines().map(str::trim_start).collect();
    let function = |line: &&str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(test))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let attribute = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| function(line))
        .any(|(at, _)| lines[at.saturating_sub(ATTRIBUTE_LINES_MAX)..at].iter().any(attribute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        let text = "#[test]\nfn a_wall_holds() {}\n\n\n\nfn a_helper() {}\n    #[tokio::test]\n    async fn two_hold() {}\n";
        vec![Source { path: "x/tests/a.rs".into(), text: text.into() }]
    }

    #[test]
    fn tests_that_are_there_pass() {
        let page = "| wall | shown by |\n|---|---|\n| a | `x/tests/a.rs::a_wall_holds` |\n\nAlso `x/tests/a.rs::two_hold`, `std::fs`.\n";
        assert_eq!(check(page, &sources()), Vec::<String>::new());
    }

    #[test]
    fn tests_that_are_not_there_and_rows_without_one_are_found() {
        let page = "| wall | shown by |\n|---|---|\n| a | `x/tests/a.rs::a_wall` |\n| b | eyes |\n\n\
                    `x/tests/b.rs::a_wall_holds` `x/tests/a.rs::a_helper`\n| other | table |\n|---|---|\n| c | d |\n";
        assert_eq!(
            check(page, &sources()),
            [
                "SECURITY.md:3: no test a_wall in x/tests/a.rs",
                "SECURITY.md:4: no test shows \"b\"",
                "SECURITY.md:6: no test a_wall_holds in x/tests/b.rs",
                "SECURITY.md:6: no test a_helper in x/tests/a.rs",
            ]
        );
    }
}
