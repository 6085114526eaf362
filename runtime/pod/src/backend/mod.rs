//! The backends of pods, as traits: networks, VMs, agents, images, shared directories, disks, volumes,
//! sockets of the node.
//!
//! Each file holds a trait and its one real implementation. The implementation passes each call on and does
//! nothing more. With the traits, tests can fail each step and check that the earlier steps are undone.

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
pub(crate) use shares::{ContainerDir, HostShares, SoughtPlace};
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
