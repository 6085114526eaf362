//! The possible states of pods and containers after an action with a fault, or during the daemon's kill.
//! Pure.

use std::collections::BTreeSet;

use super::action::Action;
use super::model::{ContainerModel, ContainerStage, KILLED, MEANWHILE, Model, Name, PodModel};

/// The running actions, and facts about pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Under<'a> {
    pub(super) actions: &'a [Action],
    /// The ids of pods given to a client, or seen as ready. A pod with an unanswered start may disappear.
    pub(super) known: &'a BTreeSet<String>,
    /// Whether a fault also affected the daemon's start: any VM may have been given up.
    pub(super) recovery_struck: bool,
}

impl Under<'_> {
    fn is_about(self, pod: usize) -> bool {
        self.actions.iter().any(|action| action.pod() == Some(pod))
    }

    fn has(self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    fn makes(self, wanted: Name) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Create(name, _) if *name == wanted))
    }

    fn limits(self, wanted: Name) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Update(name, _) if *name == wanted))
    }
}

impl Model {
    /// Checks the remaining state.
    ///
    /// # Errors
    /// A pod not involved in an action has changed, or something is lost without an action, or has gone back.
    pub(super) fn permits(&self, under: Under<'_>, left: &Model) -> Result<(), String> {
        for (number, before) in &self.pods {
            let Some(after) = left.pods.get(number) else {
                let taken = under.has(Action::RemovePod(*number)) || !under.known.contains(&before.id);
                if taken { continue } else { return Err(format!("pod {number} is lost")) }
            };
            if before.id != after.id {
                let again = under.has(Action::RemovePod(*number)) && under.has(Action::RunPod(*number));
                if again { continue } else { return Err(format!("pod {number} has another id")) }
            }
            if !under.is_about(*number) && !before.agrees_with(after, under.recovery_struck) {
                return Err(format!("pod {number} has changed from {before:?} to {after:?}"));
            }
            before.permits(*number, under, after)?;
        }
        match left.pods.keys().find(|number| !self.pods.contains_key(number)) {
            Some(number) if !under.has(Action::RunPod(*number)) => {
                Err(format!("pod {number} came from nowhere"))
            }
            _ => Ok(()),
        }
    }
}

impl PodModel {
    /// Whether only changes over time have happened: an unknown container may have become an ended one.
    fn agrees_with(&self, left: &PodModel, may_end: bool) -> bool {
        let same = |(number, before): (&usize, &ContainerModel)| {
            let Some(after) = left.containers.get(number) else { return false };
            let stage = match (before.stage, after.stage) {
                (ContainerStage::Unknown, ContainerStage::Exited(_)) => true,
                (ContainerStage::Exited(_), _) => {
                    before.stage == after.stage || (may_end && before.may_be_doubted(after))
                }
                (before, after) => before == after || may_end,
            };
            stage && before.id == after.id && before.memory_mib == after.memory_mib
        };
        let ready = self.ready == left.ready || (may_end && self.ready);
        ready && self.containers.len() == left.containers.len() && self.containers.iter().all(same)
    }

    fn permits(&self, number: usize, under: Under<'_>, left: &PodModel) -> Result<(), String> {
        if left.ready && !self.ready {
            return Err(format!("pod {number} is ready again"));
        }
        for (container, before) in &self.containers {
            let name = (number, *container);
            match left.containers.get(container) {
                None if under.has(Action::RemoveContainer(name)) => {}
                None => return Err(format!("container {name:?} is lost")),
                Some(after) if before.id != after.id => {
                    if !(under.has(Action::RemoveContainer(name)) && under.makes(name)) {
                        return Err(format!("container {name:?} is doubled"));
                    }
                }
                Some(after) => before.permits(name, under, after)?,
            }
        }
        let new = |one: &&usize| !self.containers.contains_key(one);
        match left.containers.keys().find(new) {
            Some(one) if !under.makes((number, *one)) => {
                Err(format!("container {:?} came from nowhere", (number, *one)))
            }
            _ => Ok(()),
        }
    }
}

impl ContainerModel {
    /// Whether the container has ended unseen. Then a daemon without access to its VM only reports its own
    /// knowledge: a killed VM, or an unknown state.
    fn may_be_doubted(&self, left: &ContainerModel) -> bool {
        let unseen = matches!(self.stage, ContainerStage::Exited(KILLED | MEANWHILE));
        unseen && matches!(left.stage, ContainerStage::Unknown | ContainerStage::Exited(KILLED))
    }

    fn permits(&self, name: Name, under: Under<'_>, left: &ContainerModel) -> Result<(), String> {
        if self.memory_mib != left.memory_mib && !under.limits(name) {
            return Err(format!("container {name:?} has another limit, {} MiB", left.memory_mib));
        }
        match (self.stage, left.stage) {
            (ContainerStage::Exited(_), _) if under.recovery_struck && self.may_be_doubted(left) => Ok(()),
            (ContainerStage::Exited(_), stage) if stage != self.stage => {
                Err(format!("container {name:?} has changed after its end, to {stage:?}"))
            }
            (ContainerStage::Running | ContainerStage::Unknown, ContainerStage::Created) => {
                Err(format!("container {name:?} has gone back from {:?} to created", self.stage))
            }
            _ => Ok(()),
        }
    }
}
