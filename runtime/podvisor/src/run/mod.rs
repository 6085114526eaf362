//! `podvisor run`: pull, pod, container, output, exit code and clean-up, all over the CRI socket, like any
//! client. If no daemon serves, or it has no network for pods, a private one is started with its own state,
//! and stopped at the end.
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
use proto_cri::v1;

pub(crate) use args::{Args, parse_memory};
pub(crate) use container::namespaces;

use self::daemon::PodNetwork;
use crate::client::{self, Client};
use crate::config::Config;
use crate::show::escape;

/// Runs one container and returns its exit code.
pub(crate) fn run(config: &Config, config_file: Option<&Path>, args: &Args) -> anyhow::Result<ExitCode> {
    client::block_on(async {
        match client::connect(&config.socket()).await {
            Ok(client) if has_network(&client).await => container::run(client, args, false).await,
            _ => {
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

/// Returns false if the daemon says so, as on a node without a network add-on. It says why on standard error.
async fn has_network(client: &Client) -> bool {
    let request = v1::StatusRequest { verbose: false };
    let Ok(answer) = client.runtime.clone().status(request).await else { return true };
    let conditions = answer.into_inner().status.unwrap_or_default().conditions;
    let Some(lacking) = conditions.into_iter().find(|one| one.r#type == "NetworkReady" && !one.status) else {
        return true;
    };
    let why = format!("the daemon has no network for pods ({}); running with a private one", lacking.message);
    eprintln!("podvisor: {}", escape::line(&why));
    false
}
