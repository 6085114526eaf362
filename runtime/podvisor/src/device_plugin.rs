//! `podvisor device-plugin`: lists the node's capacity for VMs as a resource of the kubelet, until SIGTERM or
//! SIGINT. It does not need the daemon. It reads the daemon's configuration for the size of a pod without
//! limits.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use runtime_device_plugin::{ResourceName, VMS_MAX, run, vms_in};
use runtime_spec::{HandlerConfig, smallest_vm_on_the_node};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::config::{Config, Loaded};
use crate::logging;

/// Arguments of `podvisor device-plugin`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The kubelet's directory of plugins. It does not move with the kubelet's --root-dir.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    directory: PathBuf,
    /// The kubelet's pod-resources socket. It moves with the kubelet's --root-dir.
    #[arg(long, value_name = "SOCKET", default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pod_resources: PathBuf,
    /// Number of VMs for this node. By default as many of the smallest as fit into its memory, and at most
    /// 110, a kubelet's usual limit of pods.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(VMS_MAX)))]
    vms: Option<u16>,
    /// Name of the resource, as pods request it.
    #[arg(long, value_name = "NAME", default_value = "podvisor.io/vm")]
    resource: ResourceName,
}

/// Serves until a signal.
pub(crate) async fn device_plugin(loaded: &Loaded, args: Args) -> anyhow::Result<ExitCode> {
    logging::begin(loaded, None);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    run(plugin_config(&loaded.config, args)?, stop).await?;
    info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn plugin_config(config: &Config, args: Args) -> anyhow::Result<runtime_device_plugin::Config> {
    let memory = nix::sys::sysinfo::sysinfo().context("asking how much memory there is")?.ram_total();
    Ok(runtime_device_plugin::Config {
        directory: args.directory,
        pod_resources: args.pod_resources,
        resource: args.resource,
        vms: args.vms.unwrap_or_else(|| vms_in(memory, smallest_vm_on_the_node())),
        vm_bytes: vm_bytes(config),
    })
}

/// Memory in bytes on the node for the VM of a pod without limits, with the default handler or else the first
/// one.
fn vm_bytes(config: &Config) -> u64 {
    let (handlers, default) = config.handlers();
    let handler =
        handlers.iter().find(|handler| Some(&handler.name) == default.as_ref()).or(handlers.first());
    let memory_mib = handler.map_or(0, |handler| handler.memory_mib);
    HandlerConfig { memory_default: memory_mib << 20, ..HandlerConfig::default() }.pod_on_the_node()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn parsed(arguments: &[&str]) -> Result<runtime_device_plugin::Config, String> {
        let arguments = ["podvisor", "device-plugin"].iter().chain(arguments);
        let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let Command::DevicePlugin(args) = cli.command else { panic!("{cli:?}") };
        plugin_config(&Config::default(), args).map_err(|error| error.to_string())
    }

    #[test]
    fn without_arguments_the_kubelets_own_places_and_the_nodes_memory_count() {
        let config = parsed(&[]).unwrap();
        assert_eq!(config.directory, PathBuf::from("/var/lib/kubelet/device-plugins"));
        assert_eq!(config.pod_resources, PathBuf::from("/var/lib/kubelet/pod-resources/kubelet.sock"));
        assert_eq!(config.resource.to_string(), "podvisor.io/vm");
        assert!((1..=110).contains(&config.vms), "{}", config.vms);
        // 256 MiB for containers, 52 for the guest, and page structures; 16 for the VMM, and page tables.
        assert_eq!(config.vm_bytes >> 20, 331);
    }

    #[test]
    fn what_a_kubelet_would_refuse_is_refused_by_the_arguments_name() {
        for (arguments, said) in [
            (["--vms", "0"], "'--vms <N>': 0 is not in 1..=1000"),
            (["--vms", "1001"], "'--vms <N>': 1001 is not in 1..=1000"),
            (["--vms", "many"], "'--vms <N>'"),
            (["--resource", "vm"], "'--resource <NAME>': \"vm\" is no name of an extended resource"),
            (["--resource", "kubernetes.io/vm"], "Kubernetes' own"),
        ] {
            let error = parsed(&arguments).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(parsed(&["--vms", "1000"]).unwrap().vms, 1000);
    }

    #[test]
    fn the_default_handlers_pods_count() {
        let handler = |name: &str, memory_mib, default| crate::config::Handler {
            name: name.into(),
            memory_mib,
            default,
            ..Default::default()
        };
        let of = |handler| vm_bytes(&Config { handler, ..Config::default() }) >> 20;
        let mib = of(vec![handler("small", 128, false), handler("large", 1024, true)]);
        assert_eq!(mib, of(vec![handler("large", 1024, true)]));
        assert!(mib > 1024, "{mib}");
        assert!(of(vec![handler("small", 0, false)]) >= smallest_vm_on_the_node() >> 20);
    }
}
