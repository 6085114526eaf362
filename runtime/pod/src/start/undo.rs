//! Removes all of a pod's resources on the host: a start's steps backwards.
//!
//! Every step's undo is idempotent and works from the record alone. So the same journal undoes a failed
//! start, stops a pod, and cleans up after a dead daemon.

use std::sync::Arc;

use async_trait::async_trait;
use runtime_spans::span;

use super::{network, vm};
use crate::backend::Vm;
use crate::error::PodError;
use crate::journal::{Journal, Undo};
use crate::node::Node;
use crate::record::{PodRecord, VmmProcess};

/// The steps of a start on the host, in the order of their use.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Scratch disk, sockets, shared directory, cgroup.
    Files,
    Network,
    /// The VMM. It holds taps, disk and cgroup.
    Vm,
}

/// The result of an undo.
#[derive(Debug)]
pub(crate) struct Undone {
    /// No process runs the pod's VM any more.
    pub(crate) vm_gone: bool,
    /// The pod's scratch disk is removed.
    pub(crate) scratch_gone: bool,
    /// Description of the remaining leftovers.
    pub(crate) left: Option<String>,
}

/// Undoes the pod's start, as far as possible.
pub(crate) async fn undo(
    node: &Arc<Node>,
    record: &Arc<PodRecord>,
    vm: Option<&Arc<dyn Vm>>,
    vmm: Option<VmmProcess>,
) -> Undone {
    let mut start = Start { node, record, vm, vmm, vm_gone: false, scratch_gone: false };
    let left = Journal::from([Step::Files, Step::Network, Step::Vm]).drain(&mut start).await;
    let left: Vec<String> = left.iter().map(PodError::chain).collect();
    let Start { vm_gone, scratch_gone, .. } = start;
    Undone { vm_gone, scratch_gone, left: (!left.is_empty()).then(|| left.join("; ")) }
}

/// Ends the pod's VM, and leaves all else of the pod as it is.
pub(crate) async fn end_vm(
    node: &Arc<Node>,
    record: &Arc<PodRecord>,
    vmm: Option<VmmProcess>,
) -> Result<(), PodError> {
    vm::down(node, record, None, vmm).await
}

/// A start being undone.
struct Start<'a> {
    node: &'a Arc<Node>,
    record: &'a Arc<PodRecord>,
    /// The handle, if the VM is known.
    vm: Option<&'a Arc<dyn Vm>>,
    /// The VMM on record.
    vmm: Option<VmmProcess>,
    vm_gone: bool,
    scratch_gone: bool,
}

#[async_trait]
impl Undo<Step> for Start<'_> {
    async fn undo(&mut self, step: Step) -> Result<(), PodError> {
        let Start { node, record, .. } = *self;
        match step {
            Step::Vm => {
                runtime_spans::step(span!("end the VM"), vm::down(node, record, self.vm, self.vmm)).await?;
                self.vm_gone = true;
                Ok(())
            }
            Step::Network => {
                runtime_spans::step(span!("take the network down"), network::down(node, record)).await
            }
            Step::Files if self.vm_gone => {
                runtime_spans::step(span!("clear the files"), vm::clear(node, record)).await?;
                self.scratch_gone = true;
                Ok(())
            }
            // If the VM may still write to its disk, the disk stays. The VM's own failure is reported.
            Step::Files => Ok(()),
        }
    }
}
