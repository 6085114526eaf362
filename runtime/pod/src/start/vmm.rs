//! A VMM as the pod's own: its cgroups, its score, its log's owner, its place on record.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use super::context::{MADE_WITHIN, StartContext};
use crate::backend::Vm;
use crate::blocking::blocking_within;
use crate::error::PodError;
use crate::host::cgroup;
use crate::host::logs::LogOwner;
use crate::record::{PodStatus, VmmProcess};

/// The VMM's OOM score before its pod has containers: every runtime gives this to a pod
/// (`defaultSandboxOOMAdj` in containerd). It is killed after containers and before the node's own services.
const OOM_SCORE: i32 = -998;

/// Makes the cgroups of the pod's VMM.
pub(super) async fn make_cgroups(context: &StartContext) -> Result<Vec<PathBuf>, PodError> {
    let (node, record) = (&context.node, context.record.clone());
    let root = node.places.cgroup_root.clone();
    let making = move || Ok::<_, Infallible>(cgroup::make(&root, &record.spec.cgroup_parent, &record.id));
    let made = blocking_within(MADE_WITHIN, &node.pools.kernel, "making cgroups", making).await?;
    if let Some(why) = made.missing.filter(|_| node.start.now().strict_cgroups) {
        let text = format!("the pod's VMM has no cgroup of its own, required by cgroup.strict: {why}");
        return Err(PodError::internal(text));
    }
    Ok(made.paths)
}

/// Gives the VMM the score of a pod without containers.
pub(super) async fn set_oom_score(vm: &Arc<dyn Vm>) -> Result<(), PodError> {
    let set = vm.set_oom_score(OOM_SCORE).await;
    set.map_err(|error| PodError::internal("setting the VMM's OOM score").because(error))
}

/// The pod, as the log of its VMM names it.
pub(super) fn log_owner(context: &StartContext) -> LogOwner {
    let spec = &context.record.spec;
    LogOwner { pod: context.id().to_owned(), namespace: spec.namespace.clone(), name: spec.name.clone() }
}

/// Records the VMM while it boots. Until then its control socket identifies its owner.
pub(super) async fn record(context: &StartContext, vm: &Arc<dyn Vm>) -> Result<(), PodError> {
    let vmm = VmmProcess::of_this_boot(vm.pid(), vm.start_time());
    let status = PodStatus { vmm: Some(vmm), ..PodStatus::starting() };
    context.node.records.put_pod_status(context.id(), &status).await
}
