//! The disk: the store agrees with the lists, and no directory or file of removed objects is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use runtime_spec::Resources;
use runtime_store::Table;
use serde::de::DeserializeOwned;

use crate::dirs::run_name;
use crate::record::{ContainerStage, ContainerStatus, PodStage, PodStatus};
use crate::tests::World;
use crate::{ContainerState, PodState};

/// Compares the store and the files with the lists.
///
/// # Errors
/// The first difference.
pub(super) fn check(world: &World) -> Result<(), String> {
    let (pods, containers) = (world.pods.pods(), world.pods.containers());
    let on_record = statuses::<PodStatus>(world, Table::PodStatuses)?;
    let listed: BTreeSet<&String> = pods.iter().map(|pod| &pod.id).collect();
    same_keys("pod", &on_record.keys().collect(), &listed)?;
    for pod in &pods {
        let status = &on_record[&pod.id];
        let ready = status.stage == PodStage::Ready;
        let pid = status.vmm.map(|vmm| vmm.pid);
        if ready != (pod.state == PodState::Ready) || (ready && pid != pod.vmm_pid) {
            return Err(format!("pod {} is {:?} on record, of VMM {pid:?}", pod.spec.name, status.stage));
        }
    }
    let on_record = statuses::<ContainerStatus>(world, Table::ContainerStatuses)?;
    let ids: BTreeSet<&String> = containers.iter().map(|container| &container.id).collect();
    same_keys("container", &on_record.keys().collect(), &ids)?;
    for container in &containers {
        let status = &on_record[&container.id];
        let same = match (container.state, status.stage) {
            (ContainerState::Created, ContainerStage::Created)
            | (ContainerState::Running, ContainerStage::Running)
            // An interrupted start stays on record until the container's end is known.
            | (ContainerState::Unknown, ContainerStage::Unknown | ContainerStage::Starting) => true,
            (ContainerState::Exited, ContainerStage::Exited) => status.exit_code == container.exit_code,
            _ => false,
        };
        let limit = |resources: &Resources| resources.memory_limit_bytes;
        let on_record = limit(status.resources.as_ref().unwrap_or(&container.spec.resources));
        if !same || on_record != limit(&container.resources) {
            return Err(format!(
                "container {} is listed as {:?} with {} bytes, and on record {:?}, {}, with {on_record}",
                container.id,
                container.state,
                limit(&container.resources),
                status.stage,
                status.exit_code
            ));
        }
    }
    no_files_left(world, &listed, &ids)
}

fn statuses<T: DeserializeOwned>(world: &World, table: Table) -> Result<BTreeMap<String, T>, String> {
    let listing = world.node.records.store().list::<T>(table).map_err(|error| error.to_string())?;
    Ok(listing.values.into_iter().collect())
}

fn same_keys(what: &str, on_record: &BTreeSet<&String>, listed: &BTreeSet<&String>) -> Result<(), String> {
    match on_record.symmetric_difference(listed).next() {
        Some(id) if listed.contains(*id) => Err(format!("{what} {id} is listed, and not on record")),
        Some(id) => Err(format!("{what} {id} is on record, and not listed")),
        None => Ok(()),
    }
}

/// Searches for ownerless directories of pods and files of acknowledgements.
fn no_files_left(
    world: &World,
    pods: &BTreeSet<&String>,
    containers: &BTreeSet<&String>,
) -> Result<(), String> {
    let places = &world.node.places;
    if let Some(left) = names(&places.state_dirs()).into_iter().find(|name| !pods.contains(name)) {
        return Err(format!("the state directory of pod {left} is left"));
    }
    for name in names(&places.run_dirs()) {
        let Some(pod) = pods.iter().find(|id| run_name(id) == name) else {
            return Err(format!("the run directory {name} is left"));
        };
        // Leftovers of a container in an ended pod go with the pod.
        if world.pods.check_ready(pod).is_err() {
            continue;
        }
        for file in names(&places.run_dirs().join(name)) {
            if let Some(id) = file.strip_suffix(".acks")
                && !containers.iter().any(|one| *one == id)
                && !world.script.state().lost.contains(id)
            {
                return Err(format!("the acknowledgements of container {id} are left"));
            }
        }
    }
    Ok(())
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
