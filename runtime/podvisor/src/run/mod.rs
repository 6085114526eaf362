//! `podvisor run`: pull, pod, container, output, exit code and clean-up, all over the CRI socket, like any
//! client. If no daemon serves, or it has no network for pods, or a kubelet uses it, a private one is started
//! with its own state, and stopped at the end.
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
mod published;
mod request;
mod rights;
mod signals;
mod storage;
mod terminal;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use proto_cri::v1;

pub(crate) use args::Args;
pub(crate) use container::{container_status, patiently};
pub(crate) use docker::reason as missing_flag;
pub(crate) use request::{NAMESPACE, namespaces, pod_metadata};
pub(crate) use rights::confined;

use self::daemon::PodNetwork;
use crate::client;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::kubelet;
use crate::show::{escape, out};

/// Why the node's daemon cannot have the pod of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hindrance {
    /// No daemon serves.
    Absent,
    /// It has no network for pods, as on a node without a network add-on; with its reason.
    NoNetwork(String),
    /// The node's kubelet uses it, and would end the pod.
    Kubelet,
}

/// Runs one container and returns its exit code.
pub(crate) fn run(config: &Config, config_file: Option<&Path>, args: &Args) -> anyhow::Result<ExitCode> {
    client::block_on(async {
        let hindrance = match nodes_daemon(config).await {
            Ok(daemon) => return container::run(&daemon, config, args, None).await,
            Err(hindrance) => hindrance,
        };
        if args.detach {
            bail!("{}", hindrance.refusal(&config.socket()));
        }
        if let Some(notice) = hindrance.notice() {
            out::complain(escape::line(&notice));
        }
        let private = daemon::start(config, config_file, hindrance.network())
            .await
            .context("starting a private daemon")?;
        let outcome = container::run(&private.served(), config, args, Some(private.state())).await;
        private.stop().await?;
        outcome
    })
}

/// The node's daemon, if it can have the pod.
async fn nodes_daemon(config: &Config) -> Result<Daemon, Hindrance> {
    let socket = config.socket();
    let client = client::connect(&socket).await.map_err(|_| Hindrance::Absent)?;
    let daemon = Daemon::over(client, socket.clone());
    let conditions = daemon.status().await.map(|status| status.wrong).unwrap_or_default();
    match hindrance(kubelet::ends_pods_of_others(&socket), conditions) {
        Some(hindrance) => Err(hindrance),
        None => Ok(daemon),
    }
}

/// What keeps a serving daemon from having the pod; `wrong` has its unmet conditions.
fn hindrance(ends_pods_of_others: bool, wrong: Vec<v1::RuntimeCondition>) -> Option<Hindrance> {
    if ends_pods_of_others {
        return Some(Hindrance::Kubelet);
    }
    let lacking = wrong.into_iter().find(|one| one.r#type == "NetworkReady");
    lacking.map(|lacking| Hindrance::NoNetwork(lacking.message))
}

impl Hindrance {
    /// Why a pod cannot outlive its command.
    fn refusal(&self, socket: &Path) -> String {
        let socket = socket.display();
        match self {
            Hindrance::Absent | Hindrance::NoNetwork(_) => format!(
                "-d needs the node's daemon on {socket}, and a network for its pods; `systemctl start podvisor` starts \
                 it, and `podvisor check` examines the network"
            ),
            Hindrance::Kubelet => format!(
                "-d would leave the pod to the daemon on {socket}, and the kubelet there ends each pod that is not its \
                 own; run it without -d, or as a pod of the cluster"
            ),
        }
    }

    /// What a run with a private daemon says first. A missing daemon is nothing special.
    fn notice(&self) -> Option<String> {
        match self {
            Hindrance::Absent => None,
            Hindrance::NoNetwork(why) => {
                Some(format!("the daemon has no network for pods ({why}); running with a private one"))
            }
            Hindrance::Kubelet => {
                Some("the node's kubelet would end the pod in its daemon; running with a private one".into())
            }
        }
    }

    /// The network of a private daemon's pod.
    fn network(&self) -> PodNetwork {
        match self {
            Hindrance::Absent | Hindrance::NoNetwork(_) => PodNetwork::OfTheNode,
            Hindrance::Kubelet => PodNetwork::Bridge,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
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

    #[test]
    fn a_daemon_with_a_kubelet_or_without_a_network_does_not_get_the_pod() {
        let wrong = |name: &str| v1::RuntimeCondition {
            r#type: name.into(),
            message: "none is there".into(),
            ..Default::default()
        };
        let no_network = Hindrance::NoNetwork("none is there".into());
        assert_eq!(hindrance(false, vec![wrong("PodsClean")]), None);
        assert_eq!(
            hindrance(false, vec![wrong("PodsClean"), wrong("NetworkReady")]).as_ref(),
            Some(&no_network)
        );
        assert_eq!(hindrance(true, vec![wrong("NetworkReady")]), Some(Hindrance::Kubelet));
        let refusal = |hindrance: &Hindrance| hindrance.refusal(Path::new("/run/p.sock"));
        assert!(refusal(&no_network).starts_with("-d needs the node's daemon on /run/p.sock, and a network"));
        assert!(refusal(&Hindrance::Kubelet).contains("/run/p.sock, and the kubelet there ends each pod"));
        assert_eq!((Hindrance::Absent.notice(), Hindrance::Absent.network()), (None, PodNetwork::OfTheNode));
        assert!(no_network.notice().unwrap().contains("(none is there); running with a private one"));
        // A cluster's network may refuse a pod that the cluster does not have.
        assert_eq!(Hindrance::Kubelet.network(), PodNetwork::Bridge);
    }
}
