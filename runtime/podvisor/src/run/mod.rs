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
mod docker;
mod limits;
pub(crate) mod logs;
mod network;
pub(crate) mod place;
mod pod_network;
mod process;
mod request;
mod rights;
mod signals;
mod storage;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

pub(crate) use args::Args;
pub(crate) use docker::reason as missing_flag;
pub(crate) use request::{NAMESPACE, namespaces, pod_metadata};
pub(crate) use rights::confined;

use self::daemon::PodNetwork;
use crate::client;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::show::escape;

/// Runs one container and returns its exit code.
pub(crate) fn run(config: &Config, config_file: Option<&Path>, args: &Args) -> anyhow::Result<ExitCode> {
    client::block_on(async {
        if let Some(daemon) = nodes_daemon(config, args).await {
            return container::run(&daemon, config, args, false).await;
        }
        if args.detach {
            bail!(
                "-d needs the node's daemon on {}, and a network for its pods; `systemctl start podvisor` starts \
                 it, and `podvisor check` examines the network",
                config.socket().display()
            );
        }
        let private = daemon::start(config, config_file, PodNetwork::OfTheNode)
            .await
            .context("starting a private daemon")?;
        let outcome = container::run(&private.served(), config, args, true).await;
        private.stop().await?;
        outcome
    })
}

/// The node's daemon. `None` if it does not serve, or reports that it has no network, as on a node without a
/// network add-on.
async fn nodes_daemon(config: &Config, args: &Args) -> Option<Daemon> {
    let daemon = Daemon::over(client::connect(&config.socket()).await.ok()?, config.socket());
    let conditions = daemon.status().await.map(|status| status.wrong).unwrap_or_default();
    let Some(lacking) = conditions.into_iter().find(|one| one.r#type == "NetworkReady") else {
        return Some(daemon);
    };
    if !args.detach {
        let why =
            format!("the daemon has no network for pods ({}); running with a private one", lacking.message);
        eprintln!("podvisor: {}", escape::line(&why));
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Args;
    use crate::{Cli, Command};

    /// The arguments of `podvisor run` with these words, or clap's text.
    pub(super) fn parsed(arguments: &[&str]) -> Result<Args, String> {
        let all = ["podvisor", "run"].iter().chain(arguments);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_behind_the_images_name_are_the_commands() {
        let args = parsed(&["--rm", "image", "ls", "-l", "--name", "x"]).unwrap();
        assert_eq!((args.image.as_str(), args.name.as_deref()), ("image", None));
        assert_eq!(args.command, ["ls", "-l", "--name", "x"]);
    }
}
