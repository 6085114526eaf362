//! The agent's state of its pod. Calls are refused until the pod is configured, so that no two guests of one
//! template share names, addresses or secrets ([`crate::rpc`] checks).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::containers::{ContainerError, Containers};
use crate::disk_volumes::DiskVolumes;
use crate::disks::Disks;
use crate::fetched_ahead::FetchedAhead;
use crate::host_sockets::HostSockets;
use crate::host_work::HostWork;
use crate::images::Images;
use crate::memory_volumes::MemoryVolumes;
use crate::prepare::Prepared;
use crate::processors::BringUp;
use crate::published_volumes::PublishedVolumes;
use crate::reaper::Reaper;
use crate::shared::Shared;
use crate::shared_places::SharedPlaces;
use crate::user_namespace::UserNamespace;

/// The pod of this guest.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    /// Whether the guest is a clone of a template. Its boot-time network is the same as other clones'.
    pub(crate) restored: bool,
    /// Prefetched random numbers. A clone throws them away before it is configured.
    pub(crate) fetched_ahead: FetchedAhead,
    pub(crate) clock: Arc<Clock>,
    pub(crate) reaper: Reaper,
    /// The processors brought up by configuration.
    pub(crate) bring_up: BringUp,
    pub(crate) images: Images,
    pub(crate) disks: Disks,
    pub(crate) containers: Containers,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shared_places: SharedPlaces,
    pub(crate) memory_volumes: MemoryVolumes,
    pub(crate) disk_volumes: DiskVolumes,
    pub(crate) published_volumes: PublishedVolumes,
    /// Work on the scratch disk.
    pub(crate) scratch_work: HostWork,
    pub(crate) host_sockets: HostSockets,
    /// Held while usage is read.
    pub(crate) usage: Arc<Mutex<()>>,
    /// Held during preparation and configuration. True after configuration.
    pub(crate) configured: Mutex<bool>,
    /// Set if the guest was prepared before it had its pod.
    pub(crate) prepared: OnceLock<Prepared>,
    /// Set by configuration, if the pod has its own user namespace.
    pub(crate) user_namespace: OnceLock<UserNamespace>,
    numbers: AtomicU64,
}

impl Pod {
    /// Returns an unconfigured pod. `restored` is true if the guest is a clone of a template.
    pub(crate) fn new(restored: bool) -> Pod {
        Pod { restored, ..Pod::default() }
    }

    /// Returns the guest's ids of a container's user and group. They own files in the guest.
    pub(crate) fn guest_ids(&self, uid: u32, gid: u32) -> Result<(u32, u32), ContainerError> {
        let Some(namespace) = self.user_namespace.get() else { return Ok((uid, gid)) };
        match (namespace.uids.guest_id(uid), namespace.gids.guest_id(gid)) {
            (Some(uid), Some(gid)) => Ok((uid, gid)),
            _ => Err(ContainerError::NotMapped { uid, gid }),
        }
    }

    /// Returns a unique number, for names of temporary files.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
