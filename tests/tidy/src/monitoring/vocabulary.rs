//! The allowed words of queries: names, labels and values of the code.

use std::collections::{BTreeMap, BTreeSet};

use super::board::{BOARD, Query};
use super::query::{self, Matcher, Used};
use crate::Source;
use crate::metrics::{Metric, of_code};

/// Labels added to all series by a scrape: Prometheus' own, and the node's name if a configuration sets it.
const OF_THE_SCRAPE: [&str; 3] = ["job", "instance", "node"];

/// The allowed words of queries.
#[derive(Debug)]
pub struct Vocabulary {
    metrics: BTreeMap<String, Metric>,
    /// All strings of the runtime's code, among them the values of labels.
    strings: BTreeSet<String>,
}

impl Vocabulary {
    /// The words of the code.
    #[must_use]
    pub fn of(sources: &[Source]) -> Vocabulary {
        let runtime = sources.iter().filter(|source| source.path.starts_with("runtime/"));
        let strings = runtime.flat_map(|source| source.text.split('"')).filter(|text| text.len() < 40);
        let mut metrics = of_code(sources);
        // Prometheus' own, of each scrape.
        metrics.insert("up".into(), Metric { kind: "gauge".into(), labels: BTreeSet::new() });
        Vocabulary { metrics, strings: strings.map(str::to_owned).collect() }
    }

    /// One line for each word of a query, or of a text with its series' labels, missing in the code.
    #[must_use]
    pub fn check(&self, query: &str, named: &[&str]) -> Vec<String> {
        let Used { matchers, grouping } = query::used(query);
        let mut breaches = Vec::new();
        let mut known: BTreeSet<&str> = OF_THE_SCRAPE.into();
        for (series, matchers) in &matchers {
            let Some((labels, metric)) = self.labels(series) else {
                breaches.push(format!("the code has no {series}"));
                continue;
            };
            for Matcher { label, value } in matchers {
                if !labels.contains(label.as_str()) && !OF_THE_SCRAPE.contains(&label.as_str()) {
                    breaches.push(format!("{metric} has no label {label}"));
                }
                // Codes of gRPC have their names from a library.
                let known_value = |value: &String| self.strings.contains(value) || label == "code";
                if let Some(value) = value.as_ref().filter(|value| !known_value(value) && label != "job") {
                    breaches.push(format!("the code has no {label} {value:?}"));
                }
            }
            known.extend(labels);
        }
        if matchers.is_empty() {
            breaches.push("no series is asked for".to_owned());
        }
        let named = named.iter().copied().chain(grouping.iter().map(String::as_str));
        let strange = named.filter(|label| !known.contains(label));
        breaches.extend(strange.map(|label| format!("no series of the query has a label {label}")));
        breaches
    }

    /// One line for each metric of the code without a query.
    #[must_use]
    pub fn check_all_are_shown(&self, queries: &[Query]) -> Vec<String> {
        let asked: Vec<_> = queries.iter().flat_map(|query| query::used(&query.text).matchers).collect();
        let shown: BTreeSet<&str> =
            asked.iter().filter_map(|(series, _)| Some(self.labels(series)?.1)).collect();
        let missing = self.metrics.keys().filter(|name| *name != "up" && !shown.contains(name.as_str()));
        missing.map(|name| format!("{BOARD}: {name} is not on the board")).collect()
    }

    /// The labels of a series, and its metric: a histogram has three kinds of series.
    fn labels(&self, series: &str) -> Option<(BTreeSet<&str>, &str)> {
        let of = |name: &str| {
            let (name, metric) = self.metrics.get_key_value(name)?;
            Some((metric.kind.as_str(), metric.labels.iter().map(String::as_str).collect(), name.as_str()))
        };
        if let Some((kind, labels, name)) = of(series) {
            return (kind != "histogram").then_some((labels, name));
        }
        let (name, part) = series.rsplit_once('_')?;
        let (kind, mut labels, name): (_, BTreeSet<&str>, _) = of(name)?;
        if part == "bucket" {
            labels.insert("le");
        }
        (kind == "histogram" && ["bucket", "sum", "count"].contains(&part)).then_some((labels, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let text = "Figures { name: \"podvisor_pods\", labels: &[\"state\"], values: vec![\"ready\"] };\n\
                    register_histogram_vec!(\"podvisor_calls_seconds\", \"Help.\", &[\"method\", \"code\"], S).expect(ONCE);";
        Vocabulary::of(&[Source { path: "runtime/x.rs".into(), text: text.into() }])
    }

    #[test]
    fn queries_in_the_codes_words_pass() {
        for query in [
            "sum by (state) (podvisor_pods{node=~\"$node\", state=\"ready\"})",
            "histogram_quantile(0.99, sum by (le, method) (rate(podvisor_calls_seconds_bucket{code!=\"Ok\"}[5m])))",
            "podvisor_pods and on (job, instance) up{job=\"podvisor\"} == 0",
            "sum without (state) (podvisor_pods) offset 5m > 1e3",
        ] {
            assert_eq!(vocabulary().check(query, &[]), Vec::<String>::new(), "{query}");
        }
    }

    #[test]
    fn words_that_the_code_does_not_have_are_found() {
        for (query, breach) in [
            ("sum(podvisor_pod)", "the code has no podvisor_pod"),
            ("podvisor_pods{kind=\"ready\"}", "podvisor_pods has no label kind"),
            ("podvisor_pods{state=\"gone\"}", "the code has no state \"gone\""),
            ("sum by (method) (podvisor_pods)", "no series of the query has a label method"),
            ("rate(podvisor_calls_seconds[5m])", "the code has no podvisor_calls_seconds"),
            ("podvisor_pods_count", "the code has no podvisor_pods_count"),
            ("vector(1)", "no series is asked for"),
        ] {
            assert_eq!(vocabulary().check(query, &[]), [breach], "{query}");
        }
        assert_eq!(
            vocabulary().check("podvisor_pods", &["kind"]),
            ["no series of the query has a label kind"]
        );
    }

    #[test]
    fn a_metric_that_no_query_names_is_found() {
        let query = Query { panel: "Pods".into(), text: "sum(podvisor_pods)".into(), legend: String::new() };
        let missing = vocabulary().check_all_are_shown(&[query]);
        assert_eq!(missing, ["dist/monitoring/podvisor.json: podvisor_calls_seconds is not on the board"]);
    }
}
