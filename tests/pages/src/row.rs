//! Rows of `blocks.toml`: a block of a page, and the way it is run.

use anyhow::Context;
use serde::Deserialize;

/// The file with the rows, from the repository's root.
pub const ROWS: &str = "tests/pages/blocks.toml";

/// A block, and the way it is run. It has exactly one of `run_by`, `covered_by` and `not_run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The page, from the repository's root.
    pub page: String,
    /// The heading above the block.
    pub heading: String,
    /// The beginning of the block.
    pub begins: String,
    /// The test that takes the block from the page, as a file and a name in it.
    pub run_by: Option<String>,
    /// Other tests with the same commands, each as a file and a name in it.
    pub covered_by: Option<Vec<String>>,
    /// The reason why no test runs it.
    pub not_run: Option<String>,
    /// Lines of shell before the block: its needs.
    #[serde(default)]
    pub before: String,
    /// Changes of the block, in order.
    #[serde(default)]
    pub change: Vec<Change>,
    /// Lines of shell behind the block: its effects.
    #[serde(default)]
    pub after: String,
}

/// A text to replace, because the block as written does not end or has a placeholder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The text on the page.
    pub from: String,
    /// The text to run.
    pub to: String,
    /// The reason.
    pub why: String,
}

/// The rows of a text in TOML, in order.
///
/// # Errors
/// If it is no TOML, or has other keys.
pub fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        block: Vec<Row>,
    }
    Ok(toml::from_str::<File>(text).context(ROWS)?.block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_known_keys_and_no_others() {
        let text = "[[block]]\npage = 'a.md'\nheading = 'H'\nbegins = 'ls'\nnot_run = 'why'\n";
        let expected = Row {
            page: "a.md".into(),
            heading: "H".into(),
            begins: "ls".into(),
            not_run: Some("why".into()),
            ..Row::default()
        };
        assert_eq!(rows(text).unwrap(), [expected]);
        assert!(rows(&format!("{text}test = 'x'\n")).is_err());
    }
}
