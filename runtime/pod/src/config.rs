//! What the daemon tells the pods about the node.

use std::path::PathBuf;

use runtime_spec::HandlerConfig;

/// Where things are on this node. Images and CNI are handed to [`Pods::open`](crate::Pods::open) beside it.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// `store.redb` and `pods/<id>/` with the scratch disks: survives a reboot.
    pub state_dir: PathBuf,
    /// `pods/<id>/` with sockets: does not survive a reboot.
    pub run_dir: PathBuf,
    /// The first one with an empty name is the default.
    pub handlers: Vec<HandlerConfig>,
    /// Guest kernel, an uncompressed ELF.
    pub kernel: PathBuf,
    /// The agent's EROFS image, padded to 2 MiB.
    pub root_image: PathBuf,
    /// A formatted ext4 image; each pod gets a sparse copy as its scratch disk.
    pub scratch_template: PathBuf,
    /// Size that a pod's scratch disk is grown to, in bytes; the template's own size if that is larger.
    pub scratch_bytes: u64,
    /// `podvisor-vmm`.
    pub vmm_binary: PathBuf,
}
