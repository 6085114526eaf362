//! The backends that pods stand on, as traits: networks, VMs, agents, images, shared directories,
//! disks, volumes, sockets of the node.
//!
//! Each file holds a trait and its one real implementation, which passes each call on and nothing more. The
//! traits are there so that tests can let each step fail and see that the steps before it are undone.

mod agent;
mod backends;
mod disks;
mod error;
mod images;
mod network;
mod shares;
mod sockets;
mod vm;
mod volumes;

pub(crate) use agent::{Acknowledge, Agent, GuestReleases, Input, Output};
pub(crate) use backends::Backends;
pub(crate) use disks::{HostDisk, KernelDisks};
pub(crate) use error::{BackendError, BackendErrorKind};
pub(crate) use images::{FoundImage, ImageLease, OpenedImage, StoredImages};
pub(crate) use network::CniNetwork;
pub(crate) use shares::{ContainerDir, HostShares};
pub(crate) use sockets::{Connector, ConnectorSpec, Looked, NodeSockets, Sockets};
pub(crate) use vm::{
    BootRequest, RestoreRequest, SpawnRequest, SpawnedVms, TemplateParts, TemplateRequest, Vm,
};
pub(crate) use volumes::{DiskContent, DiskFound, FoundVolume, KubeletVolumes, MemoryFound, PublishedFound};
#[cfg(test)]
pub(crate) use {
    agent::Connection,
    disks::{DiskError, Disks},
    images::ImageSource,
    network::Network,
    shares::Shares,
    vm::Vms,
    volumes::Volumes,
};
