//! PreparePod: does of the configuration what is the same for every pod, while the guest waits for one. Nothing here
//! may need a name, an address or a user of the pod; [`crate::configure`] does the rest, and all of it where nobody prepared.

use std::fs::File;

use proto_agent::agent::PreparePodRequest;

use crate::network::{self, NetworkError};
use crate::scratch::{self, ScratchError};
use crate::slots::{SlotError, Slots};

/// A guest that waits for its pod. The scratch disk is mounted, and the shared directory bound.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The pod's own network, where the guest is a clone.
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

/// Prepares the guest, which `restored` says is a clone of a template. The kernel's random pool has its own seed already: a clone
/// was woken with one.
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
