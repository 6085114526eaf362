//! The alerts: required texts for the operator on call, and tests firing each alert and leaving it quiet.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::links::{self, Tree};

/// The alerts.
pub const ALERTS: &str = "dist/monitoring/alerts.yaml";

/// The alerts' tests, run by `promtool`.
pub const TESTS: &str = "tests/tidy/tests/alerts.yaml";

/// The urgency of an alert: an operator is called, or reads it in the morning.
const SEVERITIES: [&str; 2] = ["critical", "warning"];

/// The page with each alert by its name.
const PAGE: &str = "docs/troubleshooting.md";

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

/// One alert, as Prometheus reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Alert {
    /// The name.
    pub alert: String,
    /// The query with its threshold.
    pub expr: String,
    r#for: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Alert {
    /// The labels of series named in its texts.
    #[must_use]
    pub fn named(&self) -> Vec<&str> {
        let rest = self.annotations.values().flat_map(|text| text.split("$labels.").skip(1));
        rest.filter_map(|rest| {
            rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next()
        })
        .collect()
    }
}

#[derive(Deserialize)]
struct Tests {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    alert_rule_test: Vec<Moment>,
}

#[derive(Deserialize)]
struct Moment {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_json::Value>,
}

/// The alerts of a rule file.
///
/// # Errors
/// If the text is invalid.
pub fn alerts(text: &str) -> anyhow::Result<Vec<Alert>> {
    let rules: Rules = serde_saphyr::from_str(text)?;
    Ok(rules.groups.into_iter().flat_map(|group| group.rules).collect())
}

/// One line for whatever an alert lacks.
#[must_use]
pub fn check_alerts(alerts: &[Alert], tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for alert in alerts {
        let mut breach = |what: String| breaches.push(format!("{ALERTS}: {}: {what}", alert.alert));
        if alert.r#for.is_empty() {
            breach("nothing says for how long".into());
        }
        let severity = alert.labels.get("severity").map_or("", String::as_str);
        if !SEVERITIES.contains(&severity) {
            breach(format!("the severity is {severity:?}"));
        }
        for key in ["summary", "description"] {
            if alert.annotations.get(key).is_none_or(|text| !text.ends_with('.')) {
                breach(format!("the {key} is no sentence"));
            }
        }
        match alert.annotations.get("runbook_url") {
            Some(url) if url.contains('#') => {
                if let Some(what) = links::broken_link(tree, "", url) {
                    breach(what);
                }
            }
            _ => breach("the runbook_url names no section".into()),
        }
        let name = format!("`{}`", alert.alert);
        let cells = |page: &String| {
            let rows = page.lines().filter_map(|line| line.strip_prefix('|'));
            rows.filter_map(|row| row.split('|').next()).any(|cell| cell.contains(&name))
        };
        if !tree.pages.get(PAGE).is_some_and(cells) {
            breach(format!("{PAGE} has no row for the alert"));
        }
    }
    breaches
}

/// One line for each alert without a firing test, or without a quiet one.
///
/// # Errors
/// If the text is no file of tests.
pub fn check_tests(alerts: &[Alert], text: &str) -> anyhow::Result<Vec<String>> {
    let tests: Tests = serde_saphyr::from_str(text)?;
    let moments: Vec<Moment> = tests.tests.into_iter().flat_map(|test| test.alert_rule_test).collect();
    let named = |fires: bool| -> BTreeSet<&str> {
        let moments = moments.iter().filter(|moment| moment.exp_alerts.is_empty() != fires);
        moments.map(|moment| moment.alertname.as_str()).collect()
    };
    let (fired, quiet) = (named(true), named(false));
    let missing = |alert: &Alert| {
        let name = alert.alert.as_str();
        let lines = [(&fired, "fires"), (&quiet, "leaves quiet")];
        let lines = lines.into_iter().filter(|(found, _)| !found.contains(name));
        lines.map(|(_, what)| format!("{TESTS}: no test {what} {name}")).collect::<Vec<_>>()
    };
    Ok(alerts.iter().flat_map(missing).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "groups:\n  - name: x\n    rules:\n      - alert: Down\n        expr: up == 0\n        for: 5m\n        \
        labels: { severity: critical }\n        annotations:\n          summary: '{{ $labels.instance }} is down.'\n          \
        description: Nobody answers.\n          runbook_url: docs/troubleshooting.md#it-is-down\n";

    fn tree() -> Tree {
        let page = "# It is down\n| `Down` | meaning |\n";
        Tree { pages: [(PAGE.to_owned(), page.to_owned())].into(), paths: [PAGE.to_owned()].into() }
    }

    #[test]
    fn an_alert_that_says_all_passes() {
        let alerts = alerts(RULES).unwrap();
        assert_eq!(check_alerts(&alerts, &tree()), Vec::<String>::new());
        assert_eq!((alerts[0].expr.as_str(), alerts[0].named()), ("up == 0", vec!["instance"]));
    }

    #[test]
    fn whatever_an_alert_lacks_is_found() {
        for (from, to, breach) in [
            ("for: 5m", "for: ''", "nothing says for how long"),
            ("critical", "loud", "the severity is \"loud\""),
            ("answers.", "answers", "the description is no sentence"),
            ("#it-is-down", "", "the runbook_url names no section"),
            (
                "#it-is-down",
                "#gone",
                "docs/troubleshooting.md has no heading for the link to docs/troubleshooting.md#gone: correct the link",
            ),
            ("alert: Down", "alert: Gone", "docs/troubleshooting.md has no row for the alert"),
        ] {
            let alerts = alerts(&RULES.replace(from, to)).unwrap();
            let found = check_alerts(&alerts, &tree());
            assert!(found.len() == 1 && found[0].ends_with(breach), "{from}: {found:?}");
        }
    }

    #[test]
    fn an_alert_without_a_test_of_each_kind_is_found() {
        let alerts = alerts(RULES).unwrap();
        let fires =
            "tests:\n  - alert_rule_test:\n      - { alertname: Down, exp_alerts: [{ exp_labels: {} }] }\n";
        let both = format!("{fires}      - {{ alertname: Down, exp_alerts: [] }}\n");
        assert_eq!(check_tests(&alerts, &both).unwrap(), Vec::<String>::new());
        assert_eq!(
            check_tests(&alerts, fires).unwrap(),
            ["tests/tidy/tests/alerts.yaml: no test leaves quiet Down"]
        );
    }
}
