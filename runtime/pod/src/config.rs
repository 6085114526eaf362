//! The daemon's configuration of the node, as the pods need it.

use std::path::PathBuf;

use runtime_image::Images;
use runtime_net::Cni;
use runtime_spec::HandlerConfig;

use crate::installed::InstalledFile;

/// The rules for pods that are started. A pod that is there keeps those that it was started by.
#[derive(Clone, Debug, Default)]
pub struct StartConfig {
    /// The handlers, each with its name.
    pub handlers: Vec<HandlerConfig>,
    /// Serves pods that name no handler; without it such pods are refused.
    pub default_handler: Option<String>,
    /// Whether a pod is refused whose VMM cannot have a cgroup of its own, or whose cgroup allows less memory than its
    /// VM and VMM take. Otherwise such a VMM stays in the daemon's cgroup, and such a VM is made to fit.
    pub strict_cgroups: bool,
}

/// Paths, handlers and stores of this node.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// `store.redb` and `pods/<id>/` with the scratch disks: survives a reboot.
    pub state_dir: PathBuf,
    /// `pods/<id>/` with sockets: does not survive a reboot.
    pub run_dir: PathBuf,
    /// The rules for pods that are started.
    pub start: StartConfig,
    /// Guest kernel, an uncompressed ELF.
    pub kernel: InstalledFile,
    /// The agent's EROFS image, padded to 2 MiB.
    pub root_image: InstalledFile,
    /// A formatted ext4 image; each pod gets a sparse copy as its scratch disk.
    pub scratch_template: InstalledFile,
    /// The program `podvisor-vmm`.
    pub vmm_binary: InstalledFile,
    /// The node's images.
    pub images: Images,
    /// The node's networks.
    pub cni: Cni,
}
