//! The node as it is: what the daemon lists, and whether the fakes agree with the lists.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{ContainerModel, ContainerStage, Model, PodModel};
use crate::driver::REMOVED;
use crate::tests::World;
use crate::{ContainerState, PodState};

/// The lines that every container writes to its stdout.
pub(super) const LINES: [&str; 3] = ["one", "two", "three"];

/// Reads the daemon's lists as a model. Pods and containers have their numbers for names.
pub(super) fn listed(world: &World) -> Model {
    let mut pods = BTreeMap::new();
    for pod in world.pods.pods() {
        let (_, containers) =
            world.pods.pod_with_containers(&pod.id).unwrap_or_else(|| (pod.clone(), Vec::new()));
        let containers = containers.into_iter().map(|container| {
            let stage = match container.state {
                ContainerState::Created => ContainerStage::Created,
                ContainerState::Running => ContainerStage::Running,
                ContainerState::Exited => ContainerStage::Exited(container.exit_code),
                ContainerState::Unknown => ContainerStage::Unknown,
            };
            (container.spec.name.parse().unwrap(), ContainerModel { id: container.id.clone(), stage })
        });
        let ready = pod.state == PodState::Ready;
        let model = PodModel { id: pod.id.clone(), ready, containers: containers.collect() };
        pods.insert(pod.spec.name.parse().unwrap(), model);
    }
    Model { pods }
}

/// Compares what runs with what is listed.
///
/// # Errors
/// A VM, a network or a process that no list has, or the reverse.
pub(super) fn agree(world: &World, model: &Model) -> Result<(), String> {
    let mut expected = BTreeSet::new();
    for pod in world.pods.pods() {
        let socket = world.node.places.control_socket(&pod.id);
        let vm = world.script.running().into_iter().find(|vm| *vm.control_socket.lock().unwrap() == socket);
        match (pod.state, &vm) {
            (PodState::Ready, None) => return Err(format!("pod {} is ready and has no VM", pod.spec.name)),
            (PodState::NotReady, Some(_)) if pod.unclean.is_none() => {
                return Err(format!("pod {} is not ready, and its VM runs", pod.spec.name));
            }
            _ => {}
        }
        let Some(vm) = vm else { continue };
        expected.insert(vm.process_id());
        let number: usize = pod.spec.name.parse().unwrap();
        let containers = &model.pods[&number].containers;
        let alive: BTreeSet<String> = containers
            .values()
            .filter(|container| !matches!(container.stage, ContainerStage::Exited(_)))
            .map(|container| container.id.clone())
            .collect();
        // A container that was being removed when the daemon was killed has ended, and may be held before its program.
        let removed = |id: &String| {
            world.pods.container(id).is_some_and(|view| view.message == REMOVED && view.started_at_ns == 0)
        };
        let present: BTreeSet<String> = vm.agent.alive().into_iter().filter(|id| !removed(id)).collect();
        if alive != present {
            let named = |ids: &BTreeSet<String>| {
                let of =
                    |id: &String| containers.iter().find(|(_, one)| one.id == *id).map(|(number, _)| *number);
                ids.iter()
                    .map(|id| of(id).map_or_else(|| "unlisted".to_owned(), |n| n.to_string()))
                    .collect::<Vec<_>>()
            };
            return Err(format!(
                "pod {number} lists {:?} as not ended, and its guest has {:?}: {containers:?}",
                named(&alive),
                named(&present)
            ));
        }
    }
    let running: BTreeSet<u32> = world.script.running().iter().map(|vm| vm.process_id()).collect();
    if running != expected {
        return Err(format!("VMs run that no pod has: {running:?} in the place of {expected:?}"));
    }
    let listed: BTreeSet<String> = world.pods.pods().iter().map(|pod| pod.id.clone()).collect();
    let networks = world.script.state().networks.clone();
    match networks.difference(&listed).next() {
        Some(network) => Err(format!("network {network} has no pod")),
        None => Ok(()),
    }
}

/// Checks the log of a container: whole lines, each once and in order; all of them where the program has ended by itself.
pub(super) fn check_log(text: &str, all: bool) -> Result<(), String> {
    let words: Vec<&str> = text.lines().map(|line| line.rsplit(' ').next().unwrap_or_default()).collect();
    let whole = text.is_empty() || text.ends_with('\n');
    let expected = if all { &LINES[..] } else { &LINES[..words.len().min(LINES.len())] };
    if whole && words == expected {
        Ok(())
    } else {
        Err(format!("a log has lines lost, doubled or torn: {text:?}"))
    }
}
