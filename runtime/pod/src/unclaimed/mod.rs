//! VMs without a pod: those saved as templates, and spares. Each has an id like a pod's, and its directories
//! among the pods'. If this daemon is killed, the next one sweeps them away and ends the VMM. None has a
//! network.
//!
//! All of them share a cgroup. It accounts for them and has the lowest priority when the node's processors
//! are short. When the node's memory is, they are the first ones killed.

pub(crate) mod closing;
pub(crate) mod ids;
pub(crate) mod pauses;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use runtime_fail_points::{Point, pass};
use runtime_spec::VolumeCache;

use crate::backend::{SpawnRequest, Vm};
use crate::blocking::blocking_within;
use crate::clock;
use crate::error::{PodError, chain_of};
use crate::host::{cgroup, logs};
use crate::live;
use crate::node::Node;

/// How long making, opening or removing files and directories may take.
pub(crate) const FILES_WITHIN: Duration = Duration::from_secs(60);

/// The OOM score of a VMM without a pod: when the node is short of memory, it is killed before any process of
/// a pod. Nothing is lost with it. A pod that claims it sets a score of its own.
const OOM_SCORE: i32 = 1000;

/// Makes an id with its directories, for a VM without a pod.
pub(crate) async fn begin(node: &Arc<Node>) -> Result<String, PodError> {
    let id = clock::new_id();
    // Known before anything of it is on the node.
    node.unclaimed.insert(&id);
    let dirs = [node.places.pod_state_dir(&id), node.places.pod_run_dir(&id)];
    let making = move || {
        pass(Point::PodDirectoryMake)?;
        dirs.into_iter().try_for_each(std::fs::create_dir_all)
    };
    let doing = "making the directories of a VM without a pod";
    let made = blocking_within(FILES_WITHIN, &node.pools.state, doing, making).await;
    if made.is_err() {
        node.unclaimed.remove(&id);
    }
    made.map(|()| id)
}

/// Starts the VMM of a VM without a pod, in the cgroup of those.
pub(crate) async fn spawn(
    node: &Arc<Node>,
    id: &str,
    volume_cache: VolumeCache,
) -> Result<Arc<dyn Vm>, PodError> {
    let log = node.places.pod_state_dir(id).join(logs::VMM);
    let make = move || logs::make_unowned(&log);
    let doing = "making the log of a VMM without a pod";
    blocking_within(FILES_WITHIN, &node.pools.state, doing, make).await?;
    let root = node.places.cgroup_root.clone();
    let making = move || Ok::<_, Infallible>(cgroup::make_unclaimed(&root));
    let made = blocking_within(FILES_WITHIN, &node.pools.kernel, "making a cgroup", making).await?;
    let request = SpawnRequest {
        id: id.to_owned(),
        dir: node.places.pod_run_dir(id),
        shared: node.places.pod_shared_dir(id),
        volume_cache,
        cgroups: made.paths,
    };
    let spawned = node.backends.vms.spawn(request).await;
    let vm = spawned.map_err(|error| PodError::internal("starting a VMM without a pod").because(error))?;
    if let Err(error) = vm.set_oom_score(OOM_SCORE).await {
        tracing::warn!(id, error = chain_of(&error), "a VMM without a pod keeps the daemon's OOM score");
    }
    Ok(vm)
}

/// Ends the VM if there is one, and removes its resources. The logs of a failed VM are kept.
pub(crate) async fn end(node: &Arc<Node>, id: &str, vm: Option<&Arc<dyn Vm>>, failed: bool) {
    let ended = match vm {
        Some(vm) => live::end(&**vm).await,
        None => Ok(()),
    };
    if let Err(error) = ended {
        tracing::warn!(id, error = error.chain(), "a VM without a pod stays until the next daemon");
        return;
    }
    let (places, of) = (node.places.clone(), id.to_owned());
    let removing = move || {
        if !failed {
            // The log of a successful VM has no readers.
            let remove = || std::fs::remove_dir_all(places.pod_state_dir(&of));
            let _ = pass(Point::PodStateDirRemove).and_then(|()| remove());
        }
        places.remove_run_dir(&of)?;
        places.remove_state_dir(&of)
    };
    let doing = "removing the directories of a VM without a pod";
    if let Err(error) = blocking_within(FILES_WITHIN, &node.pools.state, doing, removing).await {
        tracing::warn!(
            id,
            error = error.chain(),
            "directories of a VM without a pod stay until the next daemon"
        );
        return;
    }
    node.unclaimed.remove(id);
}
