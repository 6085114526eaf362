//! What pods stand on outside this crate, as traits: networks, VMs, agents, images, shared directories, disks.
//!
//! Each file holds a trait and its one real implementation, which passes each call on and nothing more. The
//! traits are there so that tests can let each step fail and see that the steps before it are undone.

mod agent;
mod disks;
mod error;
mod images;
mod network;
mod shares;
mod vm;

#[cfg(test)]
pub(crate) use agent::{Acknowledge, Connection};
pub(crate) use agent::{Agent, Input, Output};
#[cfg(test)]
pub(crate) use disks::DiskError;
pub(crate) use disks::{Disks, HostDisk, KernelDisks};
pub(crate) use error::{BackendError, BackendErrorKind};
pub(crate) use images::{FoundImage, ImageSource, StoredImages};
pub(crate) use network::{CniNetwork, Network};
pub(crate) use shares::{HostShares, Place, Shares};
pub(crate) use vm::{BootRequest, Plug, SpawnRequest, SpawnedVms, Vm, Vms};
