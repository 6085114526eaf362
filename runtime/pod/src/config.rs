//! What the daemon tells the pods about the node.

use std::path::PathBuf;

use runtime_image::Images;
use runtime_net::Cni;
use runtime_spec::HandlerConfig;

/// Where things are on this node.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// `store.redb` and `pods/<id>/` with the scratch disks: survives a reboot.
    pub state_dir: PathBuf,
    /// `pods/<id>/` with sockets: does not survive a reboot.
    pub run_dir: PathBuf,
    /// By name.
    pub handlers: Vec<HandlerConfig>,
    /// Serves pods that name no handler; without it such pods are refused.
    pub default_handler: Option<String>,
    /// Guest kernel, an uncompressed ELF.
    pub kernel: PathBuf,
    /// The agent's EROFS image, padded to 2 MiB.
    pub root_image: PathBuf,
    /// A formatted ext4 image; each pod gets a sparse copy as its scratch disk.
    pub scratch_template: PathBuf,
    /// `podvisor-vmm`.
    pub vmm_binary: PathBuf,
    /// The node's images.
    pub images: Images,
    /// The node's networks.
    pub cni: Cni,
}
