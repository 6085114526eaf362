//! Debian's Prometheus, which scrapes a daemon, and its `promtool`.

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

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    _child: Child,
}

impl Prometheus {
    /// Starts one below `dir` that scrapes both paths of the daemon at this address.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(dir: &Path, daemon: &str) -> anyhow::Result<Prometheus> {
        let dir = dir.join("prometheus");
        std::fs::create_dir_all(&dir)?;
        let config = dir.join("prometheus.json");
        let job = |name: &str, path: &str| {
            serde_json::json!({
                "job_name": name,
                "metrics_path": path,
                "static_configs": [{ "targets": [daemon] }],
            })
        };
        let jobs = [job("podvisor", "/metrics"), job("cadvisor", "/metrics/cadvisor")];
        let global = serde_json::json!({ "scrape_interval": "2s", "scrape_timeout": "2s" });
        // YAML has JSON in it.
        let text = serde_json::json!({ "global": global, "scrape_configs": jobs });
        std::fs::write(&config, text.to_string())?;
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
