//! `podvisor node`: installs Podvisor on a node and removes it, usually in a container with the node's root
//! mounted. The steps are in `runtime-node`. Here are the arguments, the printed lines, the node's label, the
//! end of pods in VMs (`end_pods.rs`), and the questions for the daemon's readiness (`ready.rs`) and its
//! kubelet (`in_use.rs`).

mod end_pods;
mod in_use;
mod ready;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use runtime_node::{
    Cluster, HostRoot, InstallSpec, KubeletRuntime, LeaveError, MountedHost, RemoveError, RemoveSpec,
    UnnamedPods,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::client;
use crate::config::Config;
use crate::show::out;

/// The interval between two checks of a switched kubelet. Fifteen checks see a kubelet ending and restarting
/// after 10 s.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// The interval between two attempts of a removal while VMs still run.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(10);

/// Arguments of `podvisor node`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Install Podvisor on this node, or continue an interrupted installation.
    Install(InstallArgs),
    /// Give the kubelet its old runtime again, and leave Podvisor installed.
    Leave(LeaveArgs),
    /// Remove the installed files from this node, once no pod runs in a VM there.
    Remove(RemoveArgs),
    /// End the pods in VMs; run by the removal, on the node.
    #[command(hide = true)]
    EndPods {
        #[arg(long)]
        force: bool,
    },
    /// Report whether a kubelet with the daemon would be ready; run by the installation, on the node.
    #[command(hide = true)]
    Ready,
    /// Report whether the node's kubelet uses the daemon; run by a package's removal.
    #[command(hide = true)]
    InUse,
    /// Run a program of the node.
    #[command(hide = true)]
    Enter {
        root: PathBuf,
        program: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Do nothing until stopped, for a container with no other purpose than to run.
    #[command(hide = true)]
    Stay,
}

/// The node to work on.
#[derive(Clone, Debug, clap::Args)]
struct NodeArgs {
    /// Where the node's root directory is mounted.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
    /// The node's name in the cluster, to set its label podvisor.io/runtime. Needs a pod's service account.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Directory of the files to install, as made by `make install DESTDIR=`.
    #[arg(long, value_name = "DIRECTORY", default_value = "/install")]
    from: PathBuf,
    /// Make the kubelet use Podvisor, with its old runtime behind it.
    #[arg(long)]
    switch_kubelet: bool,
    /// CRI socket of the node's other runtime, for a new configuration. By default the kubelet's current one
    /// is used.
    #[arg(long, value_name = "SOCKET")]
    upstream: Option<PathBuf>,
    /// Handlers of the other runtime for pods to name, for a new configuration.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "runc")]
    upstream_handlers: Vec<String>,
    /// Which pods without a handler's name go to the other runtime, for a new configuration.
    #[arg(long, value_enum, default_value_t = Unnamed::All)]
    unnamed_pods: Unnamed,
}

#[derive(Debug, clap::Args)]
struct LeaveArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// End the pods in VMs.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// End the pods in VMs.
    #[arg(long)]
    force: bool,
    /// Wait until no pod runs in a VM.
    #[arg(long, conflicts_with = "force")]
    wait: bool,
    /// Remove configuration and state, too.
    #[arg(long)]
    purge: bool,
}

/// Values of `upstream.unnamed_pods`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Unnamed {
    /// Every pod without a handler's name.
    All,
    /// Pods with the node's network, PID or IPC namespace.
    Node,
    /// None.
    None,
}

/// Runs the subcommand. `config` is read only if the node's own daemon is asked.
pub(crate) fn node(config: impl FnOnce() -> anyhow::Result<Config>, args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Install(args) => install(args),
        What::Leave(args) => leave(&args),
        What::Remove(args) => remove(&args),
        What::EndPods { force } => client::block_on(end_pods::end_pods(&config()?, force)),
        What::Ready => client::block_on(ready::ready(&config()?)),
        What::InUse => in_use::in_use(&config()?),
        What::Enter { root, program, arguments } => {
            let error = runtime_node::enter(&root, &program, &arguments);
            Err(error).with_context(|| format!("running {} in {}", program.display(), root.display()))
        }
        What::Stay => client::block_on(stay()),
    }
}

fn install(args: InstallArgs) -> anyhow::Result<ExitCode> {
    let (root, host) = places(&args.node)?;
    let spec = InstallSpec {
        from: args.from,
        upstream: args.upstream,
        handlers: named(args.upstream_handlers),
        unnamed_pods: match args.unnamed_pods {
            Unnamed::All => UnnamedPods::All,
            Unnamed::Node => UnnamedPods::Node,
            Unnamed::None => UnnamedPods::None,
        },
        schema: runtime_pod::SCHEMA_VERSION,
        switch_kubelet: args.switch_kubelet,
        // A container that fails is started again and again; a person who runs this again wants it.
        again: args.node.node.is_none(),
        between_looks: BETWEEN_LOOKS,
    };
    let runtime = runtime_node::install(&root, &host, &spec, &mut |step| out::say(step))?;
    let Some(has_podvisor) = wants_label(runtime) else {
        out::say("label: left alone, since no kubelet of a known kind runs here");
        return Ok(ExitCode::SUCCESS);
    };
    if !has_podvisor {
        out::say("label: not for this node, since its kubelet uses another runtime");
    }
    label(args.node.node, has_podvisor)
}

/// The names of a list. An empty list has an empty word.
fn named(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.is_empty());
    names
}

/// Whether the node is to have its label: the scheduler sends pods of the class to each node with it. `None`
/// if that is for the operator to know.
fn wants_label(runtime: KubeletRuntime) -> Option<bool> {
    match runtime {
        KubeletRuntime::Podvisor => Some(true),
        KubeletRuntime::Another => Some(false),
        KubeletRuntime::Unknown => None,
    }
}

fn leave(args: &LeaveArgs) -> anyhow::Result<ExitCode> {
    let (root, host) = places(&args.node)?;
    unlabelled(&args.node, args.force, || {
        Ok(runtime_node::leave(&root, &host, args.force, &mut |step| out::say(step))?)
    })
}

fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let (root, host) = places(&args.node)?;
    let spec = RemoveSpec { force: args.force, purge: args.purge };
    let mut said = String::new();
    unlabelled(&args.node, args.force || args.wait, || {
        loop {
            match runtime_node::remove(&root, &host, spec, &mut |step| out::say(step)) {
                Ok(()) => return Ok(()),
                Err(error @ RemoveError::Leave(LeaveError::Vms(_))) if args.wait => {
                    let now = error.to_string();
                    if now != said {
                        out::say(format_args!("waiting: {now}"));
                        said = now;
                    }
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// Does the work and removes the node's label. With `first` the label is removed before, so no further pods
/// of the class arrive meanwhile. Otherwise it is removed only if the work succeeds.
fn unlabelled(
    args: &NodeArgs,
    first: bool,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    if first {
        label(args.node.clone(), false)?;
        work()?;
        return Ok(ExitCode::SUCCESS);
    }
    work()?;
    label(args.node.clone(), false)
}

fn places(args: &NodeArgs) -> anyhow::Result<(HostRoot, MountedHost)> {
    let root = HostRoot::open(&args.root)?;
    let program = std::env::current_exe().context("finding this program")?;
    let enter = vec![program.to_string_lossy().into_owned(), "node".into(), "enter".into()];
    let host = MountedHost::new(root.path(), enter);
    Ok((root, host))
}

fn label(node: Option<String>, has_podvisor: bool) -> anyhow::Result<ExitCode> {
    let Some(node) = node else {
        out::say(by_hand(has_podvisor));
        return Ok(ExitCode::SUCCESS);
    };
    let cluster =
        Cluster::of_this_pod(|name| std::env::var(name).ok()).context("--node needs a pod of the cluster")?;
    client::block_on(async {
        cluster.label(&node, has_podvisor).await?;
        out::say(format_args!(
            "label: podvisor.io/runtime {} {node}",
            if has_podvisor { "is on" } else { "is not on" }
        ));
        Ok(ExitCode::SUCCESS)
    })
}

/// The label's line without a node's name, with the command for an operator.
fn by_hand(has_podvisor: bool) -> String {
    let (purpose, sign) = if has_podvisor {
        ("for pods of the class", "=true")
    } else {
        ("against further pods of the class", "-")
    };
    format!(
        "label: left alone, since --node names no node; {purpose}: kubectl label node NODE podvisor.io/runtime{sign}"
    )
}

async fn stay() -> anyhow::Result<ExitCode> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn parsed(line: &str) -> Result<What, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Node(args) => Ok(args.what),
            command => panic!("{command:?}"),
        }
    }

    #[test]
    fn an_installation_switches_nothing_and_changes_no_pods_way_unless_it_is_asked() {
        let What::Install(args) = parsed("podvisor node install").unwrap() else { panic!() };
        assert!(!args.switch_kubelet && args.upstream.is_none());
        assert!(matches!(args.unnamed_pods, Unnamed::All));
        assert_eq!((args.node.root, args.upstream_handlers), ("/".into(), vec!["runc".to_owned()]));
    }

    #[test]
    fn an_empty_list_of_handlers_names_none() {
        for (line, expected) in [("", &[][..]), ("runc,,nvidia", &["runc", "nvidia"])] {
            let line = format!("podvisor node install --upstream-handlers={line}");
            let What::Install(args) = parsed(&line).unwrap() else { panic!() };
            assert_eq!(named(args.upstream_handlers), expected);
        }
    }

    #[test]
    fn only_a_node_whose_kubelet_uses_podvisor_gets_the_label() {
        assert_eq!(wants_label(KubeletRuntime::Podvisor), Some(true));
        assert_eq!(wants_label(KubeletRuntime::Another), Some(false));
        assert_eq!(wants_label(KubeletRuntime::Unknown), None);
    }

    #[test]
    fn without_a_nodes_name_the_operator_gets_the_command_for_the_label() {
        assert!(by_hand(true).ends_with(": kubectl label node NODE podvisor.io/runtime=true"));
        assert!(by_hand(false).ends_with(": kubectl label node NODE podvisor.io/runtime-"));
    }

    #[test]
    fn a_removal_waits_for_vms_or_ends_them_and_not_both() {
        assert!(parsed("podvisor node remove --wait --force").is_err());
        let What::Remove(args) = parsed("podvisor node remove --purge").unwrap() else { panic!() };
        assert!(args.purge && !args.force && !args.wait);
    }

    #[test]
    fn a_program_of_the_node_gets_its_arguments_as_they_are() {
        let line = "podvisor node enter /host systemctl show --property=X --value a.service";
        let What::Enter { root, program, arguments } = parsed(line).unwrap() else { panic!() };
        assert_eq!((root, program), ("/host".into(), "systemctl".into()));
        assert_eq!(arguments, ["show", "--property=X", "--value", "a.service"]);
    }
}
