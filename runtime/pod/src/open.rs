//! From the daemon's configuration to what the pods share.

use std::sync::Arc;

use runtime_store::Store;

use crate::node::{Node, Places};
use crate::outside::{CniNetwork, HostShares, KernelDisks, StoredImages, VmMachines};
use crate::roster::Roster;
use crate::{PodError, PodsConfig, cgroup};

/// Makes the directories and opens the store.
pub(crate) fn node(config: PodsConfig) -> Result<Node, PodError> {
    for dir in [config.state_dir.join("pods"), config.run_dir.join("pods")] {
        std::fs::create_dir_all(&dir).map_err(|error| {
            PodError::internal(format!("making the directory {}", dir.display())).because(error)
        })?;
    }
    let store = Store::open(&config.state_dir.join("store.redb"))
        .map_err(|error| PodError::internal("opening the pods' records").because(error))?;
    Ok(Node {
        network: Arc::new(CniNetwork(config.cni)),
        machines: Arc::new(VmMachines { binary: config.vmm_binary.clone() }),
        images: Arc::new(StoredImages(config.images)),
        shares: Arc::new(HostShares),
        disks: Arc::new(KernelDisks),
        places: Places {
            state_dir: config.state_dir,
            run_dir: config.run_dir,
            kernel: config.kernel,
            root_image: config.root_image,
            scratch_template: config.scratch_template,
            cgroup_root: cgroup::ROOT.into(),
            resolv_conf: "/etc/resolv.conf".into(),
        },
        handlers: config.handlers,
        default_handler: config.default_handler,
        store,
        roster: Roster::default(),
    })
}
