//! Metrics that the code has are on the operators' page, and those on the page are in the code. The code names a metric in a
//! string of its own.

use std::collections::BTreeSet;

use crate::Source;

/// The page.
pub const PAGE: &str = "docs/metrics.md";

const PREFIX: &str = "podvisor_";

/// One line for each metric that only one of both has. The first column of the page's tables names metrics.
#[must_use]
pub fn check(page: &str, sources: &[Source]) -> Vec<String> {
    let sources = sources.iter().filter(|source| source.path.starts_with("runtime/"));
    let code: BTreeSet<&str> = sources.flat_map(|source| names(&source.text, '"')).collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let described: BTreeSet<&str> = rows.flat_map(|cell| names(cell, '`')).collect();
    let missing = code.difference(&described).map(|name| format!("{PAGE}: {name} is not on the page"));
    let gone = described.difference(&code).map(|name| format!("{PAGE}: the code has no {name}"));
    missing.chain(gone).collect()
}

/// The names that stand alone between two of these marks.
fn names(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.starts_with(PREFIX) && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    text.split(mark).filter(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_only_one_side_has_is_found() {
        let text = "gauge(\"podvisor_pods\"); counter(\"podvisor_new_total\"); let other = \"podvisor\";";
        let sources = [Source { path: "runtime/x.rs".into(), text: text.into() }];
        let page = "| `podvisor_pods`, `podvisor_old` | gauge |\n| `sum(podvisor_x) > 0` | an alert |\n`podvisor_text`\n";
        assert_eq!(
            check(page, &sources),
            [
                "docs/metrics.md: podvisor_new_total is not on the page",
                "docs/metrics.md: the code has no podvisor_old"
            ]
        );
    }
}
