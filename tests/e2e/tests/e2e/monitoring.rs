//! The dashboard and the alerts of `dist/monitoring` on a node with everything: a VM, and another runtime
//! behind the daemon.

use tests_e2e::pasted;
use tests_e2e::prometheus::Prometheus;
use tests_e2e::spec;
use tests_e2e::wait::until_seen;

use crate::metrics::{SECTION, are_served, figures};
use crate::upstream;

const BOARD: &str = include_str!("../../../../dist/monitoring/podvisor.json");

/// The queries of the dashboard's panels, for all nodes.
fn queries() -> Vec<String> {
    let board: serde_json::Value = serde_json::from_str(BOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| {
        let query = target["expr"].as_str().unwrap();
        query.replace("$__rate_interval", "2m").replace("$node", ".*").replace("$instance", ".*")
    });
    queries.collect()
}

/// The series of an alert: its query without the threshold at the end.
fn without_threshold(query: &str) -> &str {
    let compared = [" > ", " == "].into_iter().filter_map(|operator| query.rsplit_once(operator));
    let (series, threshold) = compared.max_by_key(|(series, _)| series.len()).unwrap();
    assert!(threshold.trim().parse::<f64>().is_ok(), "{query} ends with no threshold");
    series
}

/// Waits until the daemon has this figure.
async fn shows(line: &str) {
    let name = line.split([' ', '{']).next().unwrap();
    until_seen(format!("the figure {line:?}"), async || {
        let figures = figures("/metrics").await;
        let same = figures.lines().filter(|found| found.starts_with(name)).map(str::to_owned);
        let same: Vec<_> = same.collect();
        if same.iter().any(|found| found == line) { Ok(()) } else { Err(same) }
    })
    .await;
}

#[tokio::test]
async fn every_query_of_the_board_and_every_alert_has_series() {
    // No collector listens for traces: they are lost, and counted.
    let sections = format!("{SECTION}[traces]\nendpoint = \"http://127.0.0.1:1\"\n");
    let Some((host, containerd)) = upstream::start(&sections).await else { return };
    are_served().await;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let vm = client.run_pod(&spec::pod("vm", host.dir())).await.unwrap();
    let container = client.run(&vm, spec::shell("main", &image, "sleep 100000")).await.unwrap();
    let node = client.run_pod(&upstream::node_pod(&host)).await;
    let node = node.unwrap_or_else(|error| panic!("{error}\n{}", containerd.log()));
    // An answer of the daemon itself with one of the dashboard's codes other than Ok.
    client.start(&container).await.unwrap_err();

    let prometheus = Prometheus::start(host.dir()).unwrap();
    let queries = queries();
    assert!(queries.len() > 30, "the board is read whole");
    for query in &queries {
        prometheus.value(query).await.unwrap();
    }
    let rules = prometheus.rules().await.unwrap();
    assert!(rules.len() > 10, "the alerts are read whole");
    for rule in &rules {
        let found = prometheus.value(without_threshold(&rule.query)).await;
        found.unwrap_or_else(|error| panic!("{}: {error}", rule.name));
    }
    for begins in ["{ printf", "sed -i"] {
        pasted::runs("docs/metrics.md", begins).await.unwrap();
    }
    let firing = prometheus.value("count(ALERTS{alertstate=\"firing\"}) or vector(0)").await.unwrap();
    assert_eq!(firing, 0.0, "nothing is wrong with the node");

    for pod in [&node, &vm] {
        client.stop_pod(pod).await.unwrap();
        client.remove_pod(pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_upstream_that_is_down_is_seen_in_the_figures_until_it_is_back() {
    let Some((host, mut containerd)) = upstream::start(SECTION).await else { return };
    are_served().await;
    shows("podvisor_upstream_up 1").await;
    let prometheus = Prometheus::start(host.dir()).unwrap();
    assert_eq!(prometheus.value("podvisor_upstream_up").await.unwrap(), 1.0);

    containerd.kill().await.unwrap();
    shows("podvisor_upstream_up 0").await;
    upstream::is_up(&mut host.client(), false).await;
    // It fires after two minutes. They may have passed on a loaded node.
    let alert = "ALERTS{alertname=\"PodvisorUpstreamDown\"}";
    assert_eq!(prometheus.value(alert).await.unwrap(), 1.0);

    containerd.restart().await.unwrap();
    shows("podvisor_upstream_up 1").await;
    upstream::is_up(&mut host.client(), true).await;
    assert_eq!(prometheus.value("podvisor_upstream_up == 1").await.unwrap(), 1.0);
    host.stop().await.unwrap();
}
