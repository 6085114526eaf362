//! The code's metrics are on the operators' page with their kind and their labels, and those on the page are
//! in the code.
//!
//! The code has each metric's name in a separate string. The macro before the name decides the kind, and the
//! first slice of strings after it has the labels. A metric built from fields (`name:`, `labels:`) is a
//! gauge.

use std::collections::{BTreeMap, BTreeSet};

use crate::Source;

/// The page.
pub const PAGE: &str = "docs/metrics.md";

const PREFIX: &str = "podvisor_";

/// Metrics of the daemon's process have the usual names of all programs, and no labels.
const OF_THE_PROCESS: (&str, &str) = ("process_", "runtime/cri/src/exposition/process.rs");

/// Longest distance from a registering macro to the metric's name, in bytes.
const MACRO_BYTES_MAX: usize = 60;

/// A metric's kind and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    /// "counter", "gauge" or "histogram".
    pub kind: String,
    /// Names of the labels.
    pub labels: BTreeSet<String>,
}

/// The metrics of the code, by name.
#[must_use]
pub fn of_code(sources: &[Source]) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.starts_with("runtime/")) {
        for (name, at) in names(&source.text, '"', PREFIX) {
            let metric = Metric { kind: kind(&source.text[..at]).into(), labels: labels(&source.text, at) };
            metrics.entry(name.to_owned()).or_insert(metric);
        }
        if source.path == OF_THE_PROCESS.1 {
            let gauge = Metric { kind: "gauge".into(), ..Metric::default() };
            let of_process = names(&source.text, '"', OF_THE_PROCESS.0);
            metrics.extend(of_process.map(|(name, _)| (name.to_owned(), gauge.clone())));
        }
    }
    metrics
}

/// One line for each metric missing or different in one of both. The first columns of the page's tables are
/// names, kind and labels.
#[must_use]
pub fn check(page: &str, sources: &[Source]) -> Vec<String> {
    let (code, described) = (of_code(sources), of_page(page));
    let mut breaches = Vec::new();
    for (name, metric) in &code {
        match described.get(name) {
            None => breaches.push(format!("{PAGE}: {name} is not on the page")),
            Some(row) if row != metric => breaches
                .push(format!("{PAGE}: {name} is a {} with the labels {:?}", metric.kind, metric.labels)),
            Some(_) => {}
        }
    }
    let gone = described.keys().filter(|name| !code.contains_key(*name));
    breaches.extend(gone.map(|name| format!("{PAGE}: the code has no {name}")));
    breaches
}

fn of_page(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")) {
        let mut cells = row.split('|').map(str::trim);
        let (Some(first), Some(kind), Some(labels)) = (cells.next(), cells.next(), cells.next()) else {
            continue;
        };
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let metric = Metric { kind: kind.to_owned(), labels };
        for prefix in [PREFIX, OF_THE_PROCESS.0] {
            metrics.extend(names(first, '`', prefix).map(|(name, _)| (name.to_owned(), metric.clone())));
        }
    }
    metrics
}

/// The names alone between two of these marks, and the start of each.
fn names<'a>(text: &'a str, mark: char, prefix: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
    let is_name = move |word: &str| {
        word.starts_with(prefix) && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let mut at = 0;
    text.split(mark).filter_map(move |word| {
        let began = at;
        at += word.len() + mark.len_utf8();
        is_name(word).then_some((word, began))
    })
}

/// The kind, by the text before a name.
fn kind(before: &str) -> &'static str {
    let near = before.char_indices().rev().take(MACRO_BYTES_MAX).last().map_or(0, |(at, _)| at);
    let called = before[near..].rsplit_once("register_").map_or("", |(_, called)| called);
    match called {
        called if called.starts_with("histogram") => "histogram",
        called if called.starts_with("int_counter") => "counter",
        _ => "gauge",
    }
}

/// The labels of the metric with its name here: in place, or in a constant of the file.
fn labels(text: &str, at: usize) -> BTreeSet<String> {
    let rest = &text[at..];
    let end = [".expect(", "values:"].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    let Some((_, list)) = rest[..end].split_once(", &").or_else(|| rest[..end].split_once(" &")) else {
        return BTreeSet::new();
    };
    let list = match list.strip_prefix('[') {
        Some(list) => list,
        None => {
            let name: String = list.chars().take_while(char::is_ascii_uppercase).collect();
            let constant = text.split_once(&format!("const {name}: [&str;"));
            constant.and_then(|(_, rest)| rest.split_once("= [")).map_or("", |(_, list)| list)
        }
    };
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "const LABELS: [&str; 2] = [\"method\", \"code\"];\n\
        register_int_counter!(\"podvisor_new_total\", \"Help, & more.\").expect(ONCE);\n\
        register_histogram_vec!(\n        \"podvisor_calls_seconds\",\n        \"Help.\",\n        &LABELS,\n        S\n    )\n    .expect(ONCE);\n\
        register_int_counter_vec!(\n        \"podvisor_exits_total\",\n        \"Help.\",\n        &[\"reason\"]\n    )\n    .expect(ONCE);\n\
        Figures { name: \"podvisor_pods\", help: \"Help.\", labels: &[\"state\"], values: vec![] };\n\
        Figures { name: \"podvisor_images\", help: \"Help.\", labels: &[], values: vec![(vec![\"x\"], 1)] };\n\
        let other = \"podvisor\";";

    fn sources() -> [Source; 2] {
        let process = "(\"process_open_fds\", \"Help.\", open)";
        [("runtime/x.rs", CODE), (OF_THE_PROCESS.1, process)]
            .map(|(path, text)| Source { path: path.into(), text: text.into() })
    }

    #[test]
    fn kind_and_labels_are_those_of_the_definition() {
        let found: Vec<_> = of_code(&sources())
            .into_iter()
            .map(|(name, metric)| {
                format!("{name} {} {}", metric.kind, Vec::from_iter(metric.labels).join(","))
            })
            .collect();
        assert_eq!(
            found,
            [
                "podvisor_calls_seconds histogram code,method",
                "podvisor_exits_total counter reason",
                "podvisor_images gauge ",
                "podvisor_new_total counter ",
                "podvisor_pods gauge state",
                "process_open_fds gauge ",
            ]
        );
    }

    #[test]
    fn a_metric_that_only_one_side_has_or_has_otherwise_is_found() {
        let page = "| `podvisor_pods`, `podvisor_old` | gauge | `state` | text |\n| `sum(podvisor_x) > 0` | an alert |\n\
                    | `podvisor_calls_seconds` | histogram | `method` | text |\n| `podvisor_exits_total` | counter | `reason` |\n\
                    | `podvisor_images`, `process_open_fds` | gauge | | text |\n`podvisor_text`\n";
        assert_eq!(
            check(page, &sources()),
            [
                "docs/metrics.md: podvisor_calls_seconds is a histogram with the labels {\"code\", \"method\"}",
                "docs/metrics.md: podvisor_new_total is not on the page",
                "docs/metrics.md: the code has no podvisor_old",
            ]
        );
    }
}
