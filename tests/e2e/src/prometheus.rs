//! Debian's Prometheus, which scrapes a daemon as `docs/metrics.md` says, and its `promtool`.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::http;

const ADDRESS: &str = "127.0.0.1";
const PORT: u16 = 9190;

/// Generous: the software node is slow.
const SERIES_WITHIN: Duration = Duration::from_secs(120);

/// The operators' page, whose first scrape configuration is the one of a single node.
const PAGE: &str = include_str!("../../../docs/metrics.md");

/// The alerts that are installed.
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
    /// Starts one below `dir` that scrapes a daemon as the operators' page says, with the alerts that are installed.
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
        let deadline = tokio::time::Instant::now() + SERIES_WITHIN;
        loop {
            let said = match http::get_path(ADDRESS, PORT, "/api/v1/rules", 1).await {
                Ok(text) => {
                    let answer: serde_json::Value = serde_json::from_str(&text)?;
                    let groups = answer["data"]["groups"].as_array().into_iter().flatten();
                    let rules: Vec<_> =
                        groups.flat_map(|group| group["rules"].as_array()).flatten().collect();
                    if let Some(failed) = rules.iter().find(|rule| rule["health"] == "err") {
                        bail!("{failed}");
                    }
                    if !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok") {
                        let word = |rule: &serde_json::Value, key: &str| {
                            rule[key].as_str().unwrap_or_default().to_owned()
                        };
                        let rule = |rule| Rule { name: word(rule, "name"), query: word(rule, "query") };
                        return Ok(rules.into_iter().map(rule).collect());
                    }
                    text
                }
                Err(error) => error.to_string(),
            };
            if tokio::time::Instant::now() > deadline {
                bail!("the rules are not evaluated: {said}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until this query has a value, and returns the first one.
    ///
    /// # Errors
    /// When it has none in time.
    pub async fn value(&self, query: &str) -> anyhow::Result<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        let deadline = tokio::time::Instant::now() + SERIES_WITHIN;
        loop {
            let said = match http::get_path(ADDRESS, PORT, &path, 1).await {
                Ok(text) => {
                    let answer: serde_json::Value = serde_json::from_str(&text)?;
                    if let Some(value) = answer["data"]["result"][0]["value"][1].as_str() {
                        return Ok(value.parse()?);
                    }
                    text
                }
                Err(error) => error.to_string(),
            };
            if tokio::time::Instant::now() > deadline {
                bail!("{query}: {said}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Gives figures to `promtool check metrics`, and returns its words; empty where it finds nothing.
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
