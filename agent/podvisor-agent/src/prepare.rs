//! PreparePod: does the pod-independent part of the configuration while the guest waits for a pod. Nothing
//! here may need the pod's name, address or user. [`crate::configure`] does the rest, or everything for an
//! unprepared guest.

use std::fs::File;

use proto_agent::agent::PreparePodRequest;

use crate::network::{self, NetworkError};
use crate::scratch::{self, ScratchError};
use crate::slots::{SlotError, Slots};

/// A guest waiting for its pod. The scratch disk is mounted, and the shared directory bound.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The pod's own network, if the guest is a clone.
    pub(crate) network: Option<File>,
}

/// Why a guest could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// Prepares the guest. `restored` is true for a clone of a template. The kernel's random pool is already
/// seeded, because a clone is woken with a seed.
pub(crate) async fn run(restored: bool, request: &PreparePodRequest) -> Result<Prepared, PrepareError> {
    files(request.scratch_slot, request.shared_slot).await?;
    let network = if restored { Some(network::make_namespace()?) } else { None };
    Ok(Prepared { network })
}

/// Mounts the scratch disk, and binds the slot of the shared directory if there is one.
pub(crate) async fn files(scratch_slot: u32, shared_slot: u32) -> Result<(), PrepareError> {
    scratch::mount(scratch_slot).await?;
    if shared_slot != 0 {
        Slots::default().bind(shared_slot)?;
    }
    Ok(())
}
