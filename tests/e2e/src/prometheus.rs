//! Debian's Prometheus with the scrape configuration of `docs/metrics.md`, and its `promtool`.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::http;
use crate::wait::{WITHIN, within};

const ADDRESS: &str = "127.0.0.1";
const PORT: u16 = 9190;

/// The operators' page. Its first scrape configuration is the one of a single node.
const PAGE: &str = include_str!("../../../docs/metrics.md");

/// The installed alerts.
const ALERTS: &str = include_str!("../../../dist/monitoring/alerts.yaml");

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    _child: Child,
}

/// A rule of a Prometheus, as its API has it.
#[derive(Debug)]
pub struct Rule {
    /// The alert's name.
    pub name: String,
    /// The query with its threshold.
    pub query: String,
}

impl Prometheus {
    /// Starts one below `dir` with the scrape configuration of the operators' page and the installed alerts.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(dir: &Path) -> anyhow::Result<Prometheus> {
        let dir = dir.join("prometheus");
        std::fs::create_dir_all(&dir)?;
        let (config, rules) = (dir.join("prometheus.yaml"), dir.join("alerts.yaml"));
        std::fs::write(&rules, ALERTS)?;
        let block = PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        let scrapes = block.context("the page has no scrape configuration")?;
        let global = "{ scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s }";
        std::fs::write(&config, format!("global: {global}\nrule_files: [{rules:?}]\n{scrapes}"))?;
        let log = File::create(dir.join("log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={ADDRESS}:{PORT}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("running prometheus")?;
        Ok(Prometheus { _child: child })
    }

    /// Waits until every rule has been evaluated, and returns them.
    ///
    /// # Errors
    /// When one cannot be evaluated, or is not in time.
    pub async fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        asked("/api/v1/rules", evaluated).await
    }

    /// Waits until this query has a value, and returns the first one.
    ///
    /// # Errors
    /// When it has none in time.
    pub async fn value(&self, query: &str) -> anyhow::Result<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let value = |answer: &Value| {
            let value = answer["data"]["result"][0]["value"][1].as_str();
            value.map(|value| Ok(value.parse()?)).transpose()
        };
        asked(&format!("/api/v1/query?query={encoded}"), value).await.with_context(|| query.to_owned())
    }
}

/// Asks until something is found in the answer.
async fn asked<T>(path: &str, find: impl Fn(&Value) -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let look = async || {
        let text = http::ask(ADDRESS, PORT, path).await.map_err(|error| error.to_string())?;
        let answer = serde_json::from_str(&text).context("the answer is no JSON");
        answer.and_then(|answer| find(&answer)).transpose().ok_or(text)
    };
    let found = within(WITHIN, look).await;
    found.unwrap_or_else(|seen| Err(anyhow!("waited {} s for Prometheus: {seen}", WITHIN.as_secs())))
}

/// The rules, once every one has been evaluated.
fn evaluated(answer: &Value) -> anyhow::Result<Option<Vec<Rule>>> {
    let groups = answer["data"]["groups"].as_array().into_iter().flatten();
    let rules: Vec<_> = groups.flat_map(|group| group["rules"].as_array()).flatten().collect();
    if let Some(failed) = rules.iter().find(|rule| rule["health"] == "err") {
        bail!("{failed}");
    }
    if rules.is_empty() || rules.iter().any(|rule| rule["health"] != "ok") {
        return Ok(None);
    }
    let word = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let rule = |rule| Rule { name: word(rule, "name"), query: word(rule, "query") };
    Ok(Some(rules.into_iter().map(rule).collect()))
}

/// Runs `promtool check metrics` on metrics, and returns its output; empty if it finds nothing.
///
/// # Errors
/// When it cannot be run, or cannot read the figures.
pub async fn lint(figures: &str) -> anyhow::Result<String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running promtool")?;
    let mut input = child.stdin.take().context("promtool has an input")?;
    input.write_all(figures.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}
