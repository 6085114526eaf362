//! Creates the pods' shared state from the daemon's configuration.

use std::sync::Arc;

use runtime_fail_points::{Point, pass};
use runtime_store::Store;

use super::{Node, Places, Records, StartRules};
use crate::backend::{
    Backends, CniNetwork, HostShares, KernelDisks, KubeletVolumes, NodeSockets, SpawnedVms, StoredImages,
};
use crate::belonging;
use crate::blocking::Pools;
use crate::config::PodsConfig;
use crate::container::filters::Filters;
use crate::dirs::DaemonDirs;
use crate::error::PodError;
use crate::host::cgroup;
use crate::host::disk_image::DiskTemplate;
use crate::roster::Roster;
use crate::spares::kept::Spares;
use crate::templates::kept::Templates;
use crate::unclaimed::ids::UnclaimedIds;
use crate::volumes::directory_changes::DirectoryChanges;
use crate::volumes::mount_changes::MountChanges;

/// Makes the directories and opens the store.
pub(crate) fn node(config: PodsConfig) -> Result<Node, PodError> {
    let places = Places {
        dirs: DaemonDirs { state_dir: config.state_dir, run_dir: config.run_dir },
        vmm_binary: config.vmm_binary.clone(),
        kernels: config.kernels,
        root_image: config.root_image,
        scratch_template: config.scratch_template.into(),
        cgroup_root: cgroup::ROOT.into(),
        resolv_conf: runtime_spec::RESOLV_CONF.into(),
        resolved_conf: runtime_spec::RESOLVED_CONF.into(),
    };
    for dir in [places.state_dirs(), places.run_dirs()] {
        pass(Point::PodDirectories).and_then(|()| std::fs::create_dir_all(&dir)).map_err(|error| {
            PodError::internal(format!("making the directory {}", dir.display())).because(error)
        })?;
    }
    belonging::note(&places.dirs);
    let store = Store::open(&places.store())
        .map_err(|error| PodError::internal("opening the pods' records").because(error))?;
    let pools = Pools::default();
    Ok(Node {
        places,
        backends: Backends {
            network: Arc::new(CniNetwork(config.cni)),
            vms: Arc::new(SpawnedVms { binary: config.vmm_binary, kernel: pools.kernel.clone() }),
            images: Arc::new(StoredImages { images: config.images, disk: pools.state.clone() }),
            shares: Arc::new(HostShares::new(pools.paths.clone())),
            disks: Arc::new(KernelDisks(pools.paths.clone())),
            volumes: Arc::new(volumes(&pools, config.volume_template.into())),
            sockets: Arc::new(sockets(&pools)),
        },
        start: StartRules::new(config.start),
        records: Records::new(store),
        pools,
        roster: Roster::heard_by(config.plugins.clone()),
        templates: Templates::default(),
        unclaimed: UnclaimedIds::default(),
        spares: Spares::default(),
        root_image: Arc::default(),
        filters: Filters::default(),
        plugins: config.plugins,
    })
}

/// Sockets of the node. Nothing is watched before a container has one in a directory: most nodes offer none.
fn sockets(pools: &Pools) -> NodeSockets {
    NodeSockets {
        paths: pools.paths.clone(),
        kernel: pools.kernel.clone(),
        directories: Arc::new(DirectoryChanges::arrivals()),
        cgroup_root: cgroup::ROOT.into(),
    }
}

/// The source of volumes. The node's mounts and directories are watched from now on. A watch started with the
/// first volume could fail for lack of descriptors, and the daemon would hold more of them after its first
/// pod than before.
fn volumes(pools: &Pools, template: DiskTemplate) -> KubeletVolumes {
    let (mounts, directories) = (MountChanges::default(), Arc::<DirectoryChanges>::default());
    drop(mounts.follow());
    if let Err(error) = directories.prepare() {
        tracing::warn!(%error, "directories of volumes cannot be watched yet");
    }
    KubeletVolumes { paths: pools.volumes.clone(), mounts, directories, template }
}
