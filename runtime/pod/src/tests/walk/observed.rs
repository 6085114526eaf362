//! The node's current state: the daemon's lists, and whether the fakes agree with them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use runtime_spec::share_name;

use super::model::{ContainerModel, ContainerStage, Model, PodModel};
use crate::dirs::run_name;
use crate::driver::REMOVED;
use crate::tests::{FakeVm, Script, World};
use crate::{ContainerState, ContainerView, PodState};

/// Reads the daemon's lists as a model. Pods and containers have their numbers for names.
///
/// # Errors
/// Two pods, or two containers of a pod, have one name.
pub(super) fn listed(world: &World) -> Result<Model, String> {
    let mut pods = BTreeMap::new();
    for pod in world.pods.pods() {
        let (_, containers) =
            world.pods.pod_with_containers(&pod.id).unwrap_or_else(|| (pod.clone(), Vec::new()));
        let mut all = BTreeMap::new();
        for container in containers {
            let model = ContainerModel {
                id: container.id.clone(),
                stage: stage(&container),
                memory_mib: container.resources.memory_limit_bytes >> 20,
            };
            if all.insert(container.spec.name.parse().unwrap(), model).is_some() {
                return Err(format!("two containers are {:?} of pod {}", container.spec.name, pod.spec.name));
            }
        }
        let ready = pod.state == PodState::Ready;
        let silent = ready && vm_of(&world.script, &pod.id).is_some_and(|vm| vm.agent.is_silent());
        let model = PodModel { id: pod.id.clone(), ready, silent, containers: all };
        if pods.insert(pod.spec.name.parse().unwrap(), model).is_some() {
            return Err(format!("two pods are {:?}", pod.spec.name));
        }
    }
    Ok(Model { pods })
}

fn stage(container: &ContainerView) -> ContainerStage {
    match container.state {
        ContainerState::Created => ContainerStage::Created,
        ContainerState::Running => ContainerStage::Running,
        ContainerState::Exited => ContainerStage::Exited(container.exit_code),
        ContainerState::Unknown => ContainerStage::Unknown,
    }
}

/// The running VM of a pod, by its control socket.
pub(super) fn vm_of(script: &Script, pod_id: &str) -> Option<Arc<FakeVm>> {
    let dir = run_name(pod_id);
    let mut running = script.running().into_iter();
    running.find(|vm| vm.control_socket.lock().unwrap().parent().is_some_and(|parent| parent.ends_with(dir)))
}

/// Compares running objects with the lists.
///
/// # Errors A VM, a network, a process, a device or a bind missing in the lists, or the reverse; and invalid
/// calls.
pub(super) fn agree(world: &World, model: &Model) -> Result<(), String> {
    if let Some(violation) = world.script.state().violations.first() {
        return Err(violation.clone());
    }
    let mut expected = BTreeSet::new();
    for pod in world.pods.pods() {
        let vm = vm_of(&world.script, &pod.id);
        match (pod.state, &vm) {
            (PodState::Ready, None) => return Err(format!("pod {} is ready and has no VM", pod.spec.name)),
            (PodState::NotReady, Some(_)) if pod.unclean.is_none() => {
                return Err(format!("pod {} is not ready, and its VM runs", pod.spec.name));
            }
            _ => {}
        }
        let Some(vm) = vm else { continue };
        if pod.state == PodState::Ready && pod.vmm_pid != Some(vm.process_id()) {
            return Err(format!(
                "pod {} lists VMM {:?}, not {}",
                pod.spec.name,
                pod.vmm_pid,
                vm.process_id()
            ));
        }
        expected.insert(vm.process_id());
        let number: usize = pod.spec.name.parse().unwrap();
        of_guest(world, &vm, number, &model.pods[&number])?;
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

/// Compares a guest with the listed containers. A hanging guest may have leftovers.
fn of_guest(world: &World, vm: &FakeVm, number: usize, pod: &PodModel) -> Result<(), String> {
    let alive: BTreeSet<String> = pod
        .containers
        .values()
        .filter(|container| !matches!(container.stage, ContainerStage::Exited(_)))
        .map(|container| container.id.clone())
        .collect();
    // A container being removed when the daemon was killed has ended, and may be held before its program.
    let removed = |id: &String| {
        world.pods.container(id).is_some_and(|view| view.message == REMOVED && view.started_at_ns == 0)
    };
    let present: BTreeSet<String> = vm.agent.alive().into_iter().filter(|id| !removed(id)).collect();
    if alive != present && !vm.agent.is_silent() {
        let named = |ids: &BTreeSet<String>| {
            let of =
                |id: &String| pod.containers.iter().find(|(_, one)| one.id == *id).map(|(number, _)| *number);
            ids.iter()
                .map(|id| of(id).map_or_else(|| "unlisted".to_owned(), |n| n.to_string()))
                .collect::<Vec<_>>()
        };
        return Err(format!(
            "pod {number} lists {:?} as not ended, and its guest has {:?}: {:?}",
            named(&alive),
            named(&present),
            pod.containers
        ));
    }
    let created = vm.agent.created();
    let stray = created.keys().find(|id| !pod.containers.values().any(|one| one.id == **id));
    if let (Some(id), false) = (stray, vm.agent.is_silent()) {
        return Err(format!("the guest of pod {number} has a container that is not listed: {id}"));
    }
    let filled = vm.slots.lock().unwrap().clone();
    for (id, slots) in &created {
        let Some(view) = world.pods.container(id) else { continue };
        let mut wanted = vec![(slots.image, format!("image {}", view.image_id))];
        let volumes = view.volume_images.values().map(|image| format!("image {image}"));
        wanted.extend(slots.image_volumes.iter().copied().zip(volumes));
        wanted.extend(slots.block_devices.iter().copied().zip(disks(&view)));
        if let Some((slot, device)) = wanted.iter().find(|(slot, device)| filled.get(slot) != Some(device)) {
            return Err(format!("slot {slot} of container {id} has {:?}, not {device}", filled.get(slot)));
        }
        let state = world.script.state();
        let own = state.binds.get(share_name(id)).map_or(0, Vec::len);
        let is_bound = |mount: &runtime_spec::Mount| {
            state.binds.values().flatten().any(|(_, bind)| bind.source == Path::new(&mount.host_path))
        };
        let mounts: Vec<_> = view.spec.host_mounts().collect();
        if (own > mounts.len() || mounts.iter().any(|(_, mount)| !is_bound(mount))) && !removed(id) {
            return Err(format!("container {id} has {own} binds of its own, and not all that it needs"));
        }
    }
    Ok(())
}

/// The container's disks, as a VM names them.
fn disks(view: &ContainerView) -> impl Iterator<Item = String> {
    view.spec.devices.iter().map(|device| {
        let number = device.host_path.trim_start_matches("/dev/");
        format!("disk {number} {}", if device.permissions.contains('w') { "rw" } else { "ro" })
    })
}

/// Checks that a VM has only its containers' disks. This holds after each plug.
pub(super) fn no_disk_unused(world: &World, pod_id: &str) -> Result<(), String> {
    let Some(vm) = vm_of(&world.script, pod_id) else { return Ok(()) };
    let containers =
        world.pods.pod_with_containers(pod_id).map(|(_, containers)| containers).unwrap_or_default();
    let used: BTreeSet<String> = containers.iter().flat_map(|view| disks(view)).collect();
    let filled = vm.slots.lock().unwrap().clone();
    match filled.values().find(|device| device.starts_with("disk ") && !used.contains(*device)) {
        Some(device) => Err(format!("{device} is plugged, and no container has it")),
        None => Ok(()),
    }
}
