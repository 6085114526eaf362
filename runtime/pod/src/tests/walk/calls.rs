//! The calls of clients, and events in the guests.

use std::time::Duration;

use runtime_spec::{ContainerSpec, Device, Mount, PodSpec, Resources};

use super::action::{Action, Shape};
use super::model::Model;
use super::observed::vm_of;
use crate::tests::{FakeVm, World, container, pod};
use crate::{ContainerState, PodError, PodErrorKind};

/// Grace of a stop.
const GRACE: Duration = Duration::from_secs(1);
/// How long a command may take.
const EXEC_WITHIN: Duration = Duration::from_secs(30);

/// A call about to be made.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    /// The ids of the pod and of the container, where they are there.
    pub(super) pod_id: String,
    container_id: String,
    /// Distinguishes files of different calls.
    serial: usize,
    meets_fault: bool,
}

impl Call {
    pub(super) fn new(action: Action, model: &Model, serial: usize, meets_fault: bool) -> Call {
        let pod = action.pod().and_then(|pod| model.pods.get(&pod)).map_or("none", |pod| &pod.id);
        let id = match action {
            Action::Start(name)
            | Action::StopContainer(name)
            | Action::RemoveContainer(name)
            | Action::Update(name, _)
            | Action::ReopenLog(name)
            | Action::Exec(name)
            | Action::End(name, _) => model.container_id(name),
            _ => None,
        };
        Call {
            action,
            pod_id: pod.to_owned(),
            container_id: id.unwrap_or("none").to_owned(),
            serial,
            meets_fault,
        }
    }

    /// The log of the container created by the call.
    pub(super) fn log(&self) -> String {
        format!("{}.log", self.serial)
    }

    /// Makes the call. Returns the id of the new or existing object.
    pub(super) async fn make(&self, world: &World) -> Result<Option<String>, String> {
        let (pods, pod_id, id) = (&world.pods, &*self.pod_id, &*self.container_id);
        let answer: Result<Option<String>, PodError> = match self.action {
            Action::RunPod(number) => {
                let logs = Some(world.dir.path().join("logs"));
                pods.run(PodSpec { log_directory: logs, ..pod(&number.to_string()) }).await.map(Some)
            }
            Action::StopPod(_) => pods.stop(pod_id).await.map(|()| None),
            Action::RemovePod(_) => pods.remove(pod_id).await.map(|()| None),
            Action::Create((_, number), shape) => {
                pods.create_container(pod_id, spec(number, shape, self.log())).await.map(Some)
            }
            Action::Start(_) => pods.start_container(id).await.map(|()| None),
            Action::StopContainer(_) => pods.stop_container(id, GRACE).await.map(|()| None),
            Action::RemoveContainer(_) => pods.remove_container(id).await.map(|()| None),
            Action::Update(_, mib) => pods.update_container(id, memory(mib)).await.map(|()| None),
            Action::ReopenLog(_) => {
                self.move_log(world);
                pods.reopen_log(id).await.map(|()| None)
            }
            Action::Exec(_) => self.exec(world).await.map(|()| None),
            _ => {
                if let Some(vm) = vm_of(&world.script, pod_id) {
                    self.befall(&vm);
                }
                Ok(None)
            }
        };
        answer.map_err(|error| error.chain())
    }

    /// Runs a command with output, or one beyond its time-out. After the latter nothing remains.
    async fn exec(&self, world: &World) -> Result<(), PodError> {
        let words = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        if self.serial.is_multiple_of(2) {
            let output =
                world.pods.exec_sync(&self.container_id, words(["echo", "x"]), Some(EXEC_WITHIN)).await?;
            if output.stdout != b"x" {
                world.script.violate(format!("a command said x, and was heard as {output:?}"));
            }
            return Ok(());
        }
        let vm = vm_of(&world.script, &self.pod_id);
        let running = || vm.as_ref().filter(|vm| vm.runs()).map(|vm| vm.agent.commands()).unwrap_or_default();
        let before = running();
        match world.pods.exec_sync(&self.container_id, words(["sleep", "x"]), Some(EXEC_WITHIN)).await {
            Err(error) if error.kind() == PodErrorKind::DeadlineExceeded => {
                if !self.meets_fault && !running().is_subset(&before) {
                    world.script.violate("a command that took too long was not killed".to_owned());
                }
                Ok(())
            }
            outcome => outcome.map(|_| ()),
        }
    }

    /// Applies the action to the guest.
    fn befall(&self, vm: &FakeVm) {
        match self.action {
            Action::End(_, code) if vm.agent.alive().contains(&self.container_id) => {
                vm.agent.end(&self.container_id, code, false);
            }
            Action::CrashVm(_) => vm.crash(""),
            Action::Silence(_, silence) => vm.agent.silence(silence),
            _ => {}
        }
    }

    /// Moves the container's log away, as log rotation does.
    fn move_log(&self, world: &World) {
        let Some(view) = world.pods.container(&self.container_id) else { return };
        let moved = view.log_path.with_extension(format!("{}.moved", self.serial));
        if view.state != ContainerState::Exited && std::fs::rename(&view.log_path, &moved).is_ok() {
            world.script.state().moved_logs.entry(view.id.clone()).or_default().push(moved);
        }
    }
}

fn memory(mib: i64) -> Resources {
    Resources { memory_limit_bytes: mib << 20, ..Resources::default() }
}

fn spec(number: usize, shape: Shape, log: String) -> ContainerSpec {
    let host = |number: u8| Mount {
        host_path: format!("/data{number}"),
        container_path: format!("/data{number}"),
        ..Mount::default()
    };
    let image = |image: u8| Mount {
        image: format!("image{image}"),
        container_path: format!("/image{image}"),
        readonly: true,
        ..Mount::default()
    };
    let disk = |disk: u8| Device {
        host_path: format!("/dev/{disk}"),
        container_path: "/dev/xvda".into(),
        permissions: if disk.is_multiple_of(2) { "rw" } else { "r" }.into(),
        ..Device::default()
    };
    let volumes = shape.volume_images().into_iter().map(image);
    ContainerSpec {
        log_path: Some(log),
        image: format!("image{}", shape.image),
        mounts: (0..shape.host_mounts).map(host).chain(volumes).collect(),
        devices: shape.disk.into_iter().map(disk).collect(),
        resources: memory(shape.memory_mib),
        ..container(&number.to_string())
    }
}
