//! A pod's start in a spare VM, which has gone on from its template, and has the pod's id and scratch disk already.

use std::sync::Arc;

use super::context::{Failed, MADE_WITHIN, StartContext};
use super::up::{Up, check_layer_limits, keeps, names_sockets, versions};
use super::vmm::{log_owner, make_cgroups, record, set_oom_score};
use crate::backend::Vm;
use crate::blocking::blocking_within;
use crate::error::{PodError, chain_of};
use crate::host::logs;
use crate::live::{self, Live};
use crate::spares::Spare;

/// Makes the spare the pod's VM. `None` where the spare is no good: it has been ended, and the pod starts without.
pub(super) async fn claim(context: &StartContext, spare: Spare) -> Result<Option<Up>, Failed> {
    let vm = spare.vm.clone();
    let late = |error| Failed { error, vm: Some(vm.clone()) };
    match context.watch.time("spawn", take(context, &vm)).await {
        Ok(()) => {}
        Err(error) => {
            tracing::warn!(
                pod = context.id(),
                error = error.chain(),
                "a spare VM is no good; the pod starts without"
            );
            live::end(&*vm).await.map_err(late)?;
            return Ok(None);
        }
    }
    tracing::info!(pod = context.id(), "a pod starts in a VM that waited");
    let protocol = spare.releases.protocol;
    check_layer_limits(context, protocol).map_err(late)?;
    let sockets = names_sockets(context) && vm.has_program_port();
    let keeps = keeps(context, &*vm, protocol, sockets);
    let versions = versions(spare.builds, context.record.bounds.kernel, &vm.release(), &spare.releases);
    Ok(Some(Up { live: Live::new(vm, spare.agent), versions, keeps, template: None }))
}

/// Moves the VMM to the pod's cgroup, and puts the pod's name to it.
async fn take(context: &StartContext, vm: &Arc<dyn Vm>) -> Result<(), PodError> {
    let recording = record(context, vm);
    let moving = async {
        let cgroups = make_cgroups(context).await?;
        let moved = vm.enter_cgroups(&cgroups).await;
        moved.map_err(|error| PodError::internal("moving a VMM to its pod's cgroup").because(error))?;
        set_oom_score(context, vm).await;
        Ok(())
    };
    let (recorded, moved) = tokio::join!(recording, moving);
    recorded.and(moved)?;
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
