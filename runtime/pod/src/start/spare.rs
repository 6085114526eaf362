//! A pod's start in a spare: a VM restored from its template, already with the pod's scratch disk, or a VMM
//! without a guest. Either has the pod's id.

use std::sync::Arc;

use super::context::{Failed, MADE_WITHIN, StartContext};
use super::up::{Up, check_layer_limits, keeps, names_sockets, versions};
use super::vmm::{log_owner, make_cgroups, record, set_oom_score};
use crate::backend::Vm;
use crate::blocking::blocking_within;
use crate::counters::Origin;
use crate::error::{PodError, chain_of};
use crate::host::logs;
use crate::live::{self, Live};
use crate::spares::SpareGuest;

/// Makes the spare VM the pod's. `None` if it has failed: it has been ended, and the pod starts without it.
pub(super) async fn claim(
    context: &StartContext,
    vm: Arc<dyn Vm>,
    guest: SpareGuest,
) -> Result<Option<Up>, Failed> {
    let late = |error| Failed { error, vm: Some(vm.clone()) };
    let taking = async {
        let (recorded, taken) = tokio::join!(record(context, &vm), take(context, &vm));
        recorded.and(taken)
    };
    if let Err(error) = context.watch.time("spawn", taking).await {
        give_up(context, &vm, error).await?;
        return Ok(None);
    }
    tracing::info!(pod = context.id(), "a spare VM is claimed by a pod");
    let protocol = guest.releases.protocol;
    check_layer_limits(context, protocol).map_err(late)?;
    let sockets = names_sockets(context) && vm.has_program_port();
    let keeps = keeps(context, &*vm, protocol, sockets);
    let versions = versions(guest.builds, context.record.bounds.kernel, &vm.release(), &guest.releases);
    let (live, template) = (Live::new(vm, guest.agent), Some(guest.template));
    Ok(Some(Up { live, versions, keeps, origin: Origin::Spare, template }))
}

/// Makes the VMM without a guest the pod's. Returns whether it is: else it was no good and has been ended.
pub(super) async fn claim_vmm(context: &StartContext, vm: &Arc<dyn Vm>) -> Result<bool, Failed> {
    match context.watch.time("spawn", take(context, vm)).await {
        Ok(()) => {
            tracing::debug!(pod = context.id(), "a spare VMM is claimed by a pod");
            Ok(true)
        }
        Err(error) => give_up(context, vm, error).await.map(|()| false),
    }
}

/// Ends a failed spare.
async fn give_up(context: &StartContext, vm: &Arc<dyn Vm>, error: PodError) -> Result<(), Failed> {
    let error = error.chain();
    tracing::warn!(pod = context.id(), error, "a spare is no good; the pod starts without");
    live::end(&**vm).await.map_err(|error| Failed { error, vm: Some(vm.clone()) })
}

/// Moves the VMM to the pod's cgroup, and puts the pod's name to it.
async fn take(context: &StartContext, vm: &Arc<dyn Vm>) -> Result<(), PodError> {
    let cgroups = make_cgroups(context).await?;
    let moved = vm.enter_cgroups(&cgroups).await;
    moved.map_err(|error| PodError::internal("moving a VMM to its pod's cgroup").because(error))?;
    // With the score of a spare, the pod would be killed before any other.
    set_oom_score(vm).await?;
    let path = context.node.places.pod_state_dir(context.id()).join(logs::VMM);
    let (owner, pool) = (log_owner(context), &context.node.pools.state);
    let naming = move || logs::claim(&path, &owner);
    if let Err(error) = blocking_within(MADE_WITHIN, pool, "naming the VMM's log", naming).await {
        tracing::warn!(
            pod = context.id(),
            error = chain_of(&error),
            "the log of a VMM does not name its pod"
        );
    }
    Ok(())
}
