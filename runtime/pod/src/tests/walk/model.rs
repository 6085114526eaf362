//! The model: pods and containers as seen by a client, and the effect of each action on them. Pure.

use std::collections::BTreeMap;

use super::action::Action;
use crate::tests::Silence;

/// A container by the numbers of its pod and of itself.
pub(super) type Name = (usize, usize);

/// Exit code of a container ended with its VM.
pub(super) const KILLED: i32 = 137;
/// Exit code of a container ended while no daemon ran.
pub(super) const MEANWHILE: i32 = 4;
/// Exit code of a container asked to end.
const ASKED: i32 = 143;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerStage {
    Created,
    Running,
    /// With its exit code.
    Exited(i32),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodModel {
    pub(super) id: String,
    pub(super) ready: bool,
    /// The guest does not answer.
    pub(super) silent: bool,
    pub(super) containers: BTreeMap<usize, ContainerModel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerModel {
    pub(super) id: String,
    pub(super) stage: ContainerStage,
    /// The limit of memory.
    pub(super) memory_mib: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) pods: BTreeMap<usize, PodModel>,
}

/// The predicted answer to an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Refused,
    /// The guest hangs, and the answer depends on its caller.
    Either,
}

/// An action and its answer: the id of the new object, or the text of the failure.
pub(super) type Answered = (Action, Result<Option<String>, String>);

impl Model {
    pub(super) fn stage(&self, name: Name) -> Option<ContainerStage> {
        self.container(name).map(|one| one.stage)
    }

    pub(super) fn container(&self, (pod, container): Name) -> Option<&ContainerModel> {
        self.pods.get(&pod)?.containers.get(&container)
    }

    pub(super) fn is_ready(&self, pod: usize) -> bool {
        self.pods.get(&pod).is_some_and(|pod| pod.ready)
    }

    pub(super) fn is_silent(&self, pod: usize) -> bool {
        self.pods.get(&pod).is_some_and(|pod| pod.silent)
    }

    pub(super) fn container_id(&self, name: Name) -> Option<&str> {
        self.container(name).map(|one| one.id.as_str())
    }

    /// Predicts the answer to an action without a fault.
    pub(super) fn answer(&self, action: Action) -> Answer {
        use ContainerStage::{Created, Exited, Running, Unknown};
        let if_admitted = |admitted: bool, pod| match (admitted, self.is_silent(pod)) {
            (true, false) => Answer::Done,
            (true, true) => Answer::Either,
            (false, _) => Answer::Refused,
        };
        let stage = |name| self.stage(name);
        match action {
            // The same call joins the first one.
            Action::RunPod(pod) if self.pods.get(&pod).is_none_or(|pod| pod.ready) => Answer::Done,
            Action::RunPod(_) => Answer::Refused,
            Action::Create(name, _) => if_admitted(self.is_ready(name.0) && stage(name).is_none(), name.0),
            Action::Start(name) => if_admitted(self.is_ready(name.0) && stage(name) == Some(Created), name.0),
            Action::Update(name, _) => {
                let open = matches!(stage(name), Some(Created | Running | Unknown));
                if_admitted(self.is_ready(name.0) && open, name.0)
            }
            Action::ReopenLog(name) => match stage(name) {
                None | Some(Exited(_)) => Answer::Refused,
                Some(_) => Answer::Done,
            },
            Action::Exec(name) => if_admitted(stage(name) == Some(Running), name.0),
            // Its end is unknown as long as its VM cannot be ended.
            Action::StopContainer(name) | Action::RemoveContainer(name)
                if stage(name) == Some(Unknown) && !self.is_ready(name.0) =>
            {
                Answer::Either
            }
            // A running container is stopped first. This ends the VM of a hanging guest.
            Action::RemoveContainer(name) if !matches!(stage(name), None | Some(Running | Unknown)) => {
                if_admitted(true, name.0)
            }
            _ => Answer::Done,
        }
    }

    /// Whether the action may change something.
    pub(super) fn is_touched_by(&self, action: Action) -> bool {
        match action {
            Action::RunPod(pod) => !self.pods.contains_key(&pod),
            Action::StopPod(pod) => self.is_ready(pod),
            Action::RemovePod(pod) => self.pods.contains_key(&pod),
            Action::RemoveContainer(name) => self.container(name).is_some(),
            Action::StopContainer(name) => {
                matches!(self.stage(name), Some(ContainerStage::Running | ContainerStage::Unknown))
            }
            Action::Damage(_) | Action::Reboot => !self.pods.is_empty(),
            _ => self.answer(action) != Answer::Refused,
        }
    }

    /// Returns the possible states after these answers to concurrent actions: one for each order of them.
    pub(super) fn after(&self, answered: &[Answered]) -> Vec<Model> {
        let mut orders: Vec<Vec<&Answered>> = vec![answered.iter().collect()];
        if answered.len() > 1 {
            orders.push(answered.iter().rev().collect());
        }
        orders.into_iter().filter_map(|order| self.after_all(&order)).collect()
    }

    fn after_all(&self, answered: &[&Answered]) -> Option<Model> {
        let mut model = self.clone();
        for (action, answer) in answered {
            match (model.answer(*action), answer) {
                (Answer::Done, Ok(id)) => model.apply(*action, id.as_deref()),
                (Answer::Refused, Err(_)) => true,
                _ => false,
            }
            .then_some(())?;
        }
        Some(model)
    }

    /// Applies an action answered as predicted to the model. `id` is the id of the new or existing pod or
    /// container. Returns false if this is impossible.
    pub(super) fn apply(&mut self, action: Action, id: Option<&str>) -> bool {
        let id = id.unwrap_or_default().to_owned();
        match action {
            Action::RunPod(pod) => {
                let new =
                    PodModel { id: id.clone(), ready: true, silent: false, containers: BTreeMap::new() };
                return self.pods.entry(pod).or_insert(new).id == id;
            }
            Action::StopPod(pod) | Action::CrashVm(pod) => self.end_vm(pod),
            Action::RemovePod(pod) => drop(self.pods.remove(&pod)),
            Action::Silence(number, silence) => {
                let Some(pod) = self.pods.get_mut(&number) else { return true };
                pod.silent = pod.ready;
                let open = |stage| matches!(stage, ContainerStage::Running | ContainerStage::Unknown);
                // A watcher waits for the end of running containers, and gives up an unreachable guest.
                if silence == Silence::Unreachable && pod.containers.values().any(|one| open(one.stage)) {
                    self.end_vm(number);
                }
            }
            Action::Create((pod, container), shape) => {
                let (stage, memory_mib) = (ContainerStage::Created, shape.memory_mib);
                if let Some(pod) = self.pods.get_mut(&pod) {
                    pod.containers.insert(container, ContainerModel { id, stage, memory_mib });
                }
            }
            Action::Start(name) => self.change(name, |one| one.stage = ContainerStage::Running),
            Action::StopContainer(name) => self.stop(name),
            Action::RemoveContainer(name) => {
                if self.is_silent(name.0) {
                    self.stop(name);
                }
                if let Some(pod) = self.pods.get_mut(&name.0) {
                    pod.containers.remove(&name.1);
                }
            }
            Action::Update(name, mib) => self.change(name, |one| one.memory_mib = mib),
            Action::End(name, code) => {
                self.change(name, |one| {
                    if one.stage == ContainerStage::Running {
                        one.stage = ContainerStage::Exited(code);
                    }
                });
            }
            Action::Exec(_) | Action::ReopenLog(_) | Action::Kill | Action::Reboot | Action::Damage(_) => {}
        }
        true
    }

    fn stop(&mut self, name: Name) {
        if !matches!(self.stage(name), Some(ContainerStage::Running | ContainerStage::Unknown)) {
            return;
        }
        if self.is_silent(name.0) {
            return self.end_vm(name.0);
        }
        self.change(name, |one| one.stage = ContainerStage::Exited(ASKED));
    }

    /// The VM ends, and all in it.
    pub(super) fn end_vm(&mut self, pod: usize) {
        if let Some(pod) = self.pods.get_mut(&pod) {
            (pod.ready, pod.silent) = (false, false);
            pod.containers.values_mut().for_each(ContainerModel::kill);
        }
    }

    pub(super) fn change(&mut self, (pod, container): Name, change: impl FnOnce(&mut ContainerModel)) {
        if let Some(one) = self.pods.get_mut(&pod).and_then(|pod| pod.containers.get_mut(&container)) {
            change(one);
        }
    }
}

impl ContainerModel {
    pub(super) fn kill(&mut self) {
        if !matches!(self.stage, ContainerStage::Exited(_)) {
            self.stage = ContainerStage::Exited(KILLED);
        }
    }
}
