//! Reloads: reads the configuration again at SIGHUP, and passes it to the parts with a changing
//! configuration. All or nothing: if the file is wrong, or a part refuses its values, the old configuration
//! stays in force.
//!
//! ```text
//!   SIGHUP ──► read, check ──► keys of a reload ──► parts ──► published: Status, metrics, `podvisor config`
//!                  └── wrong ────┴── contradict ────┴── cannot ──► an error in the log; published as refused
//! ```
//!
//! One task reloads. Signals during a reload cause one more reload afterwards.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use runtime_cri::ConfigurationView;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::node::handler_names;
use super::service;
use crate::config::change::{Change, changes, taken_up};
use crate::config::keys::Takes;
use crate::config::view::{ConfigView, Reload};
use crate::config::{Config, ConfigError, Loaded, load};

/// Timeout for reading the file from its disk.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Changes with a line each in the log. A file of a mebibyte could have thousands.
const CHANGES_LOGGED_MAX: usize = 64;

/// The parts with a changing configuration.
pub(super) trait TakeUp: Send {
    /// Takes the configuration, whole or not at all.
    fn take_up(&mut self, config: &Config) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The configuration in force, its parts and its subscribers.
#[derive(Debug)]
pub(super) struct Reloader<T> {
    path: Option<PathBuf>,
    in_force: Loaded,
    parts: T,
    views: watch::Sender<ConfigurationView>,
    /// A reading past its timeout. A hanging disk must not take another thread at each signal.
    reading: Option<JoinHandle<Result<Loaded, ConfigError>>>,
}

/// The configuration in force at the start, for its subscribers.
pub(super) fn publish_first(loaded: &Loaded) -> watch::Sender<ConfigurationView> {
    watch::Sender::new(view(loaded, None, 0))
}

impl<T: TakeUp> Reloader<T> {
    pub(super) fn new(
        path: Option<PathBuf>,
        in_force: Loaded,
        parts: T,
        views: watch::Sender<ConfigurationView>,
    ) -> Reloader<T> {
        Reloader { path, in_force, parts, views, reading: None }
    }

    /// Reloads at each signal, until the daemon stops.
    pub(super) async fn run(mut self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            let noted = service::reloading().await;
            self.reload().await;
            if noted {
                service::reloaded().await;
            }
        }
    }

    /// Reloads once, and logs the outcome.
    async fn reload(&mut self) {
        let outcome = self.attempt().await;
        let waiting = match &outcome {
            Ok(changes) => changes.iter().filter(|change| change.takes == Takes::Restart).count(),
            Err(_) => self.views.borrow().waiting,
        };
        let refused = outcome.as_ref().err().map(|error| format!("{error:#}"));
        match &outcome {
            Ok(changes) => log(changes),
            Err(error) => error!(
                error = format!("{error:#}"),
                "the configuration is not reloaded, and the one before stays in force"
            ),
        }
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.views.send_replace(view(&self.in_force, Some(Reload { at_s, refused }), waiting));
    }

    /// Returns the keys with changed values in the file.
    async fn attempt(&mut self) -> anyhow::Result<Vec<Change>> {
        let now = self.read().await?;
        if self.in_force.is_there && !now.is_there {
            bail!(
                "the configuration {} is not there any more; an empty file stands for the defaults",
                now.file.display()
            );
        }
        let next = taken_up(&self.in_force, &now)
            .map_err(|why| anyhow::anyhow!("configuration {}: {why}", now.file.display()))?;
        self.parts.take_up(&next.config).await?;
        let changes = changes(&self.in_force.settings, &now.settings);
        self.in_force = next;
        Ok(changes)
    }

    async fn read(&mut self) -> anyhow::Result<Loaded> {
        if self.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            bail!("an earlier reading of the configuration still waits for its disk");
        }
        let path = self.path.clone();
        let mut reading = tokio::task::spawn_blocking(move || load(path.as_deref()));
        match tokio::time::timeout(READ_WITHIN, &mut reading).await {
            Ok(read) => Ok(read.context("reading the configuration")??),
            Err(_) => {
                self.reading = Some(reading);
                bail!("the configuration's disk did not answer within {READ_WITHIN:?}")
            }
        }
    }
}

fn log(changes: &[Change]) {
    if changes.is_empty() {
        return info!("the configuration is reloaded, and has not changed");
    }
    let shown = |value: &Option<toml::Value>| value.as_ref().map_or("unset".to_owned(), ToString::to_string);
    for Change { key, from, to, takes } in changes.iter().take(CHANGES_LOGGED_MAX) {
        let (from, to) = (shown(from), shown(to));
        match takes {
            Takes::Reload => info!(key, from, to, "a key of the configuration is reloaded"),
            Takes::Restart => warn!(key, from, to, "a key of the configuration needs a restart"),
        }
    }
    let more = changes.len().saturating_sub(CHANGES_LOGGED_MAX);
    info!(changes = changes.len(), unlisted = more, "the configuration is reloaded");
}

fn view(loaded: &Loaded, reload: Option<Reload>, waiting: usize) -> ConfigurationView {
    let is_refused = reload.as_ref().is_some_and(|reload| reload.refused.is_some());
    let (file, settings) = (loaded.file.clone(), loaded.settings.clone());
    let in_force = ConfigView { pid: std::process::id(), file, settings, reload };
    ConfigurationView {
        handlers: handler_names(&loaded.config),
        in_force: serde_json::to_value(in_force).unwrap_or_default(),
        is_refused,
        waiting,
        walls: runtime_vm::walls().into_iter().map(|wall| (wall.name, wall.found.err())).collect(),
    }
}

#[cfg(test)]
mod tests;
