//! The files of `dist/monitoring`, and the scrape configurations of `docs/metrics.md`, as the code and
//! Prometheus' own tool see them.

// Steps shared by the tests below; clippy's exception for tests knows marked functions only.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tests_tidy::monitoring::{
    ALERTS, BOARD, TESTS, Vocabulary, alerts, check_alerts, check_shape, check_tests, panels,
};
use tests_tidy::{Repository, links, metrics};

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::of(&Repository::read().unwrap().sources));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[track_caller]
fn holds(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

/// Runs Debian's promtool, installed by `make deps`.
#[track_caller]
fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output();
    let output = output.expect("promtool, of the package prometheus (make deps)");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_boards_queries_ask_for_what_the_code_serves() {
    let (_, queries) = panels(&text(BOARD)).unwrap();
    assert!(queries.len() > 30, "the board is read whole");
    let of_query = |query: &tests_tidy::monitoring::Query| {
        let breaches = VOCABULARY.check(&query.text, &query.named());
        breaches.into_iter().map(|what| format!("{BOARD}: {:?}: {what}", query.panel)).collect::<Vec<_>>()
    };
    holds(&queries.iter().flat_map(of_query).collect::<Vec<_>>());
}

#[test]
fn prometheus_takes_the_boards_queries() {
    let (_, queries) = panels(&text(BOARD)).unwrap();
    // Queries are checked as rules. JSON is valid YAML.
    let rule = |(at, query): (usize, &tests_tidy::monitoring::Query)| {
        let query = query.text.replace("$__rate_interval", "2m");
        serde_json::json!({ "record": format!("board:{at}"), "expr": query })
    };
    let rules: Vec<_> = queries.iter().enumerate().map(rule).collect();
    let groups = serde_json::json!({ "groups": [{ "name": "board", "rules": rules }] });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.json");
    std::fs::write(&file, groups.to_string()).unwrap();
    promtool(&["check", "rules"], &file);
}

#[test]
fn every_metric_is_on_the_board() {
    holds(&VOCABULARY.check_all_are_shown(&panels(&text(BOARD)).unwrap().1));
}

#[test]
fn panels_have_places_and_descriptions_of_their_own() {
    holds(&check_shape(&panels(&text(BOARD)).unwrap().0));
}

#[test]
fn alerts_ask_for_what_the_code_serves() {
    let alerts = alerts(&text(ALERTS)).unwrap();
    assert!(alerts.len() > 10, "the alerts are read whole");
    let of_alert = |alert: &tests_tidy::monitoring::Alert| {
        let breaches = VOCABULARY.check(&alert.expr, &alert.named());
        breaches.into_iter().map(|what| format!("{ALERTS}: {}: {what}", alert.alert)).collect::<Vec<_>>()
    };
    holds(&alerts.iter().flat_map(of_alert).collect::<Vec<_>>());
}

#[test]
fn alerts_say_what_is_wrong_and_where_help_is() {
    holds(&check_alerts(&alerts(&text(ALERTS)).unwrap(), &links::Tree::read().unwrap()));
}

#[test]
fn every_alert_is_tested_in_both_ways() {
    holds(&check_tests(&alerts(&text(ALERTS)).unwrap(), &text(TESTS)).unwrap());
}

#[test]
fn prometheus_takes_the_alerts() {
    promtool(&["check", "rules"], &root().join(ALERTS));
}

#[test]
fn alerts_fire_when_they_should_and_not_otherwise() {
    promtool(&["test", "rules"], &root().join(TESTS));
}

/// Blocks of YAML on the page.
fn scrape_configurations(page: &str) -> Vec<&str> {
    let blocks: Vec<&str> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 1, "{blocks:?}");
    blocks
}

/// A node without Podvisor would be a daemon that does not answer.
#[test]
fn a_clusters_jobs_ask_nodes_with_podvisor_alone() {
    let label = "podvisor.io/runtime";
    assert!(text("dist/kubernetes/runtimeclass.yaml").contains(&format!("{label}: \"true\"")));
    let label = label.replace(['.', '/'], "_");
    let keep =
        format!("{{ source_labels: [__meta_kubernetes_node_label_{label}], regex: \"true\", action: keep }}");
    let page = text(metrics::PAGE);
    let jobs = scrape_configurations(&page).into_iter().flat_map(|block| block.split("job_name:").skip(1));
    let of_nodes: Vec<&str> = jobs.filter(|job| job.contains("role: node")).collect();
    assert_eq!(of_nodes.len(), 2);
    for job in of_nodes {
        assert!(job.contains(&keep), "{job}");
    }
}

#[test]
fn prometheus_takes_the_pages_scrape_configurations() {
    let page = text(metrics::PAGE);
    let dir = tempfile::tempdir().unwrap();
    for block in scrape_configurations(&page) {
        let file = dir.path().join("prometheus.yml");
        // Debian builds its Prometheus without Kubernetes.
        let block = block.replace("kubernetes_sd_configs: [{ role: node }]", "static_configs: []");
        std::fs::write(&file, block).unwrap();
        promtool(&["check", "config", "--syntax-only"], &file);
    }
}
