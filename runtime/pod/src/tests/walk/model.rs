//! The model: pods and containers as a client knows them, and what each action makes of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;

/// A container by the numbers of its pod and of itself.
pub(super) type Name = (usize, usize);

/// Exit code of a container that went with its VM.
const KILLED: i32 = 137;
/// Exit code of a container that was asked to end.
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
    pub(super) containers: BTreeMap<usize, ContainerModel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerModel {
    pub(super) id: String,
    pub(super) stage: ContainerStage,
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
}

impl Model {
    pub(super) fn stage(&self, (pod, container): Name) -> Option<ContainerStage> {
        self.pods.get(&pod)?.containers.get(&container).map(|one| one.stage)
    }

    pub(super) fn is_ready(&self, pod: usize) -> bool {
        self.pods.get(&pod).is_some_and(|pod| pod.ready)
    }

    pub(super) fn container_id(&self, (pod, container): Name) -> Option<&str> {
        self.pods.get(&pod)?.containers.get(&container).map(|one| one.id.as_str())
    }

    /// Predicts the answer to an action that meets no fault.
    pub(super) fn answer(&self, action: Action) -> Answer {
        let refused_unless = |admitted: bool| if admitted { Answer::Done } else { Answer::Refused };
        match action {
            // The same call joins the first one.
            Action::RunPod(pod) => refused_unless(self.pods.get(&pod).is_none_or(|pod| pod.ready)),
            Action::Create(name) => refused_unless(self.is_ready(name.0) && self.stage(name).is_none()),
            Action::Start(name) => {
                refused_unless(self.is_ready(name.0) && self.stage(name) == Some(ContainerStage::Created))
            }
            Action::Exec(name) => refused_unless(self.stage(name) == Some(ContainerStage::Running)),
            _ => Answer::Done,
        }
    }

    /// Changes the model as an action does that was answered as predicted. `id` is that of a new pod or container.
    pub(super) fn apply(&mut self, action: Action, id: Option<String>) {
        match action {
            Action::RunPod(pod) => {
                let new = PodModel { id: id.unwrap_or_default(), ready: true, containers: BTreeMap::new() };
                self.pods.entry(pod).or_insert(new);
            }
            Action::StopPod(pod) | Action::CrashVm(pod) => {
                if let Some(pod) = self.pods.get_mut(&pod) {
                    pod.ready = false;
                    pod.containers.values_mut().for_each(ContainerModel::kill);
                }
            }
            Action::RemovePod(pod) => drop(self.pods.remove(&pod)),
            Action::Create((pod, container)) => {
                let new = ContainerModel { id: id.unwrap_or_default(), stage: ContainerStage::Created };
                if let Some(pod) = self.pods.get_mut(&pod) {
                    pod.containers.insert(container, new);
                }
            }
            Action::Start(name) => self.set(name, ContainerStage::Running),
            Action::StopContainer(name) => {
                if matches!(self.stage(name), Some(ContainerStage::Running | ContainerStage::Unknown)) {
                    self.set(name, ContainerStage::Exited(ASKED));
                }
            }
            Action::RemoveContainer((pod, container)) => {
                if let Some(pod) = self.pods.get_mut(&pod) {
                    pod.containers.remove(&container);
                }
            }
            Action::End(name, code) => self.set(name, ContainerStage::Exited(code)),
            Action::Exec(_) | Action::Kill => {}
        }
    }

    fn set(&mut self, (pod, container): Name, stage: ContainerStage) {
        if let Some(one) = self.pods.get_mut(&pod).and_then(|pod| pod.containers.get_mut(&container)) {
            one.stage = stage;
        }
    }

    /// Checks what is left where a fault struck the recovery after an action: pods may have ended meanwhile, and
    /// nothing else differs from [`permits`](Self::permits).
    pub(super) fn permits_after_recovery(
        &self,
        action: Action,
        left: &Model,
        known: &BTreeSet<String>,
    ) -> Result<(), String> {
        let mut as_left = self.clone();
        for (number, pod) in &mut as_left.pods {
            let Some(after) = left.pods.get(number) else { continue };
            pod.ready = after.ready;
            for (container, before) in &mut pod.containers {
                let stage = after.containers.get(container).map(|one| one.stage);
                if let (false, Some(stage)) = (matches!(before.stage, ContainerStage::Exited(_)), stage) {
                    before.stage = stage;
                }
            }
        }
        as_left.permits(action, left, known)
    }

    /// Checks what an action that failed, or in which the daemon was killed, has left.
    ///
    /// # Errors
    /// A pod that the action is not about has changed, or something is lost that the action does not take away. A pod
    /// whose start was never answered with its id may go.
    pub(super) fn permits(
        &self,
        action: Action,
        left: &Model,
        known: &BTreeSet<String>,
    ) -> Result<(), String> {
        for (number, before) in &self.pods {
            let Some(after) = left.pods.get(number) else {
                let taken = action == Action::RemovePod(*number) || !known.contains(&before.id);
                if taken { continue } else { return Err(format!("pod {number} is lost")) }
            };
            if action.pod() != Some(*number) && before != after {
                return Err(format!("pod {number} has changed from {before:?} to {after:?}"));
            }
            before.permits(*number, action, after)?;
        }
        match left.pods.keys().find(|number| !self.pods.contains_key(number)) {
            Some(number) if action != Action::RunPod(*number) => {
                Err(format!("pod {number} came from nowhere"))
            }
            _ => Ok(()),
        }
    }
}

impl PodModel {
    fn permits(&self, number: usize, action: Action, left: &PodModel) -> Result<(), String> {
        if self.id != left.id {
            return Err(format!("pod {number} has another id"));
        }
        for (container, before) in &self.containers {
            let name = (number, *container);
            match left.containers.get(container) {
                None if matches!(action, Action::RemoveContainer(one) if one == name) => {}
                None => return Err(format!("container {name:?} is lost")),
                Some(after) if before.id != after.id => return Err(format!("container {name:?} is doubled")),
                Some(after) => match (before.stage, after.stage) {
                    (ContainerStage::Exited(_), stage) if stage != before.stage => {
                        return Err(format!("container {name:?} has changed after its end, to {stage:?}"));
                    }
                    _ => {}
                },
            }
        }
        match left.containers.keys().find(|one| !self.containers.contains_key(one)) {
            Some(one) if action != Action::Create((number, *one)) => {
                Err(format!("container {:?} came from nowhere", (number, *one)))
            }
            _ => Ok(()),
        }
    }
}

impl ContainerModel {
    fn kill(&mut self) {
        if !matches!(self.stage, ContainerStage::Exited(_)) {
            self.stage = ContainerStage::Exited(KILLED);
        }
    }
}
