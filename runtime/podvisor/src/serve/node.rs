//! The node as CRI reports it: its network, its cgroups, and the handlers.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use runtime_cri::{ConfigurationView, Node, NodeNetwork, Watchdog};
use runtime_net::{Cni, PodRanges};
use tokio::sync::watch;

use crate::config::{CgroupDriver, Config};
use crate::kvm::KVM;

/// Returns the node with this network and the published configuration.
pub(super) fn node(
    config: &Config,
    network: CniNetwork,
    watchdog: Arc<Watchdog>,
    configuration: watch::Receiver<ConfigurationView>,
) -> Node {
    Node {
        configuration,
        network: Box::new(network),
        cgroup_driver: cgroup_driver(config.cgroup.driver),
        state_dir: config.paths.state.clone(),
        kvm: KVM.into(),
        watchdog,
    }
}

/// Names of the handlers of VMs. The default one comes first, with an empty name.
pub(super) fn handler_names(config: &Config) -> Vec<String> {
    let (handlers, default) = config.handlers();
    let names = handlers.into_iter().map(|handler| handler.name);
    default.map(|_| String::new()).into_iter().chain(names).collect()
}

/// Returns the configured driver. By default it is systemd's if systemd runs the host (sd_booted(3)).
fn cgroup_driver(set: Option<CgroupDriver>) -> runtime_cri::CgroupDriver {
    match set {
        Some(set) => set.into(),
        None if Path::new("/run/systemd/system").is_dir() => runtime_cri::CgroupDriver::Systemd,
        None => runtime_cri::CgroupDriver::Cgroupfs,
    }
}

/// The node's networks by CNI. Clones share the configuration.
#[derive(Clone, Debug)]
pub(super) struct CniNetwork {
    cni: Cni,
    ranges: Arc<RwLock<PodRanges>>,
}

impl CniNetwork {
    pub(super) fn new(cni: Cni, config: &Config) -> CniNetwork {
        CniNetwork { cni, ranges: Arc::new(RwLock::new(pod_ranges(config))) }
    }

    /// Uses these directories and this template from now on.
    pub(super) fn configure(&self, config: &Config) {
        self.cni.configure(config.cni.pod_networks());
        *self.ranges.write().unwrap_or_else(PoisonError::into_inner) = pod_ranges(config);
    }

    fn ranges(&self) -> PodRanges {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn pod_ranges(config: &Config) -> PodRanges {
    let saved = config.paths.state.join("pod-ranges");
    PodRanges::new(config.cni.conf_dir.clone(), config.cni.conf_template.clone(), saved)
}

impl NodeNetwork for CniNetwork {
    fn ready(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async {
            self.cni.status().await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
        })
    }

    fn set_pod_ranges(&self, ranges: &[String]) -> Result<(), String> {
        self.ranges().set(ranges).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    fn pod_ranges(&self) -> Vec<String> {
        self.ranges().get()
    }
}

#[cfg(test)]
mod tests {
    use runtime_net::CniConfig;

    use super::*;

    #[tokio::test]
    async fn other_directories_are_looked_into_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.cni.conf_dir = dir.path().join("one");
        config.paths.state = dir.path().to_owned();
        let network = CniNetwork::new(Cni::new(CniConfig::default()), &config);
        let shared = network.clone();
        config.cni.conf_dir = dir.path().join("two");
        network.configure(&config);
        let why = shared.ready().await.unwrap_err();
        assert!(why.contains(&config.cni.conf_dir.display().to_string()), "{why}");
    }

    #[test]
    fn the_default_handler_has_the_empty_name_too() {
        assert_eq!(handler_names(&Config::default()), ["", "podvisor"]);
    }
}
