//! The daemon's configuration of the node, as needed for pods.

use std::path::PathBuf;
use std::sync::Arc;

use runtime_image::Images;
use runtime_net::Cni;
use runtime_spec::{HandlerConfig, Kernel};

use crate::installed::InstalledFile;
use crate::plugins::Plugins;

/// The rules for new pods. An existing pod keeps the rules of its start.
#[derive(Clone, Debug, Default)]
pub struct StartConfig {
    /// The handlers, each with its name.
    pub handlers: Vec<HandlerConfig>,
    /// Serves pods without a handler's name. Without a default, such pods are refused.
    pub default_handler: Option<String>,
    /// Whether to refuse a pod if its VMM cannot have a cgroup of its own, or if its cgroup allows less
    /// memory than its VM and VMM need. Otherwise the VMM stays in the daemon's cgroup, and the VM is made to
    /// fit.
    pub strict_cgroups: bool,
    /// Most VMMs without a guest in the pool.
    pub spare_vmms: u8,
    /// Walls around VMMs that pods are not started without, and that this node lacks: each with why, for
    /// people.
    pub walls_missing: Vec<String>,
}

/// The files of the guest kernels. The full one may be missing if no handler needs it.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// See [`Kernel::Small`].
    pub small: InstalledFile,
    /// See [`Kernel::Full`].
    pub full: InstalledFile,
}

impl Kernels {
    /// The file of a kernel.
    pub(crate) fn of(&self, kernel: Kernel) -> &InstalledFile {
        match kernel {
            Kernel::Small => &self.small,
            Kernel::Full => &self.full,
        }
    }
}

/// Paths, handlers and stores of this node.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// `store.redb` and `pods/<id>/` with the scratch disks: survives a reboot.
    pub state_dir: PathBuf,
    /// `pods/<id>/` with sockets: does not survive a reboot.
    pub run_dir: PathBuf,
    /// The rules for new pods.
    pub start: StartConfig,
    /// Guest kernels, uncompressed ELFs.
    pub kernels: Kernels,
    /// The agent's EROFS image, padded to 2 MiB.
    pub root_image: InstalledFile,
    /// A formatted ext4 image; each pod gets a sparse copy as its scratch disk.
    pub scratch_template: InstalledFile,
    /// A formatted ext4 image with a journal; each disk of a volume is a sparse copy at first.
    pub volume_template: InstalledFile,
    /// The program `podvisor-vmm`.
    pub vmm_binary: InstalledFile,
    /// The node's images.
    pub images: Images,
    /// The node's networks.
    pub cni: Cni,
    /// The node's plugins.
    pub plugins: Arc<dyn Plugins>,
    /// What becomes of pods of an earlier daemon.
    pub earlier: EarlierPods,
}

/// What becomes of the ready pods of an earlier daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlierPods {
    /// They are connected to, and go on.
    #[default]
    GoOn,
    /// Their VMs are killed without a question: the command that ran them is gone.
    End,
}
