//! `podvisor run`: pull, pod, container, output, exit code and clean-up, all over the CRI socket, like any
//! client. If no daemon serves, a private one is started with its own state, and stopped at the end.
//!
//! ```text
//!   connect or start a daemon ─> pull ─> RunPodSandbox ─> Create, Start ─> follow the log ─> exit code
//!                                              └──────────── StopPodSandbox, RemovePodSandbox ─┘  (always)
//! ```

mod args;
mod container;
pub(crate) mod daemon;
mod network;
pub(crate) mod place;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

pub(crate) use args::{Args, parse_memory};
pub(crate) use container::namespaces;

use self::daemon::PodNetwork;
use crate::client;
use crate::config::Config;

/// Runs one container and returns its exit code.
pub(crate) fn run(config: &Config, config_file: Option<&Path>, args: &Args) -> anyhow::Result<ExitCode> {
    client::block_on(async {
        match client::connect(&config.socket()).await {
            Ok(client) => container::run(client, args, false).await,
            Err(_) => {
                let daemon = daemon::start(config, config_file, PodNetwork::OfTheNode)
                    .await
                    .context("starting a private daemon")?;
                let outcome = container::run(daemon.client(), args, true).await;
                daemon.stop().await?;
                outcome
            }
        }
    })
}
