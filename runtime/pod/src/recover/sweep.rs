//! Ownerless leftovers: VMMs, networks and disks without a record, or with a lost one.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs;
use std::sync::Arc;

use runtime_net::PodNetworkSpec;

use crate::blocking::blocking;
use crate::dirs::run_name;
use crate::error::chain_of;
use crate::id::is_id;
use crate::node::Node;

/// Finds the directories of pods without a record, by their names.
pub(super) fn find(node: &Node, known: &HashSet<String>) -> HashSet<String> {
    let parents = [node.places.state_dirs(), node.places.run_dirs()];
    let entries = parents.iter().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
    // A run directory has the beginning of its pod's id for a name, a state directory all of it.
    let owned: HashSet<&str> = known.iter().flat_map(|id| [id.as_str(), run_name(id)]).collect();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !owned.contains(name.as_str()))
        .collect()
}

/// Removes the VMMs, networks and disks of such directories. Then plugins clean up after forgotten networks.
pub(super) async fn sweep(node: Arc<Node>, strays: HashSet<String>) {
    for id in strays {
        match sweep_one(&node, &id).await {
            Ok(()) => tracing::info!(id, "removed leftovers without a pod on record"),
            Err(why) => tracing::warn!(id, why, "leftovers without a pod on record stay"),
        }
    }
    node.backends.network.collect_garbage().await;
}

async fn sweep_one(node: &Node, id: &str) -> Result<(), String> {
    let killed = node.backends.vms.kill(None, &node.places.control_socket(id)).await;
    killed.map_err(|error| chain_of(&error))?;
    for pod_id in networks_of(node, id).await? {
        let spec = PodNetworkSpec { pod_id, ..PodNetworkSpec::default() };
        node.backends.network.teardown(&spec).await.map_err(|error| chain_of(&error))?;
    }
    let (places, owned) = (node.places.clone(), id.to_owned());
    // The state directory is last: it takes the console out of the other one.
    let removing = move || {
        places.remove_run_dir(&owned)?;
        places.remove_state_dir(&owned)
    };
    let doing = format!("removing the directories of {id}");
    blocking(&node.pools.state, &doing, removing).await.map_err(|error| error.chain())
}

/// The pods whose networks go with a directory of this name: a pod's id, or the name of its run directory.
async fn networks_of(node: &Node, name: &str) -> Result<HashSet<String>, String> {
    let network = node.backends.network.clone();
    let finding =
        blocking(&node.pools.state, "looking for networks", move || Ok::<_, Infallible>(network.pod_ids()));
    let found = finding.await.map_err(|error| error.chain())?;
    let here = found.into_iter().filter(|id| is_id(id) && (id == name || run_name(id) == name));
    // Without a trace, too: a plugin's DEL may have failed half-way.
    Ok(here.chain(is_id(name).then(|| name.to_owned())).collect())
}
