//! Takes away everything a pod holds on the host: a start's steps backwards.
//!
//! Every step is idempotent and works from the record alone, so that the same code undoes a failed
//! start, stops a pod, and cleans up after a daemon that died. A step that fails does not keep the
//! others from being tried.

use std::sync::Arc;

use super::{network, vm};
use crate::backend::Vm;
use crate::error::chain_of;
use crate::node::Node;
use crate::record::{PodRecord, VmmProcess};

/// What an undo came to.
#[derive(Debug)]
pub(crate) struct Undone {
    /// No process runs the pod's machine any more.
    pub(crate) vm_gone: bool,
    /// What could not be taken away, in words.
    pub(crate) left: Option<String>,
}

/// Undoes the pod, as far as it can.
pub(crate) async fn undo(
    node: &Arc<Node>,
    record: &Arc<PodRecord>,
    live: Option<&Arc<dyn Vm>>,
    vmm: Option<VmmProcess>,
) -> Undone {
    let mut left = Vec::new();
    // The machine first: it holds taps, disk and cgroup.
    let vm_gone = match vm::down(node, record, live, vmm).await {
        Ok(()) => true,
        Err(text) => {
            left.push(format!("ending the VM: {text}"));
            false
        }
    };
    if let Err(error) = network::down(node, record).await {
        left.push(format!("taking the network down: {}", chain_of(&error)));
    }
    // The disk of a machine that may still write to it stays.
    if vm_gone {
        let (clearing, of) = (node.clone(), record.clone());
        let cleared = tokio::task::spawn_blocking(move || vm::clear(&clearing, &of)).await;
        match cleared {
            Ok(Ok(())) => {}
            Ok(Err(error)) => left.push(format!("taking disk, sockets and cgroup away: {error}")),
            Err(error) => left.push(format!("taking disk, sockets and cgroup away: {error}")),
        }
    }
    Undone { vm_gone, left: (!left.is_empty()).then(|| left.join("; ")) }
}
