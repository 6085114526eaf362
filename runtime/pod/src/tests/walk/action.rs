//! The actions of a walk, and how they are drawn.

use rand::Rng;
use rand::rngs::StdRng;

use super::model::{ContainerStage, Model, Name};
use crate::tests::Fault;

/// Pods that a walk has at most.
const PODS: usize = 3;
/// Containers that a pod of a walk has at most.
const CONTAINERS: usize = 3;
/// Points that a fault lets pass at most: a pod's start has most of them.
const POINTS_BEFORE: usize = 16;

/// One action. Pods and containers are named by small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    RunPod(usize),
    StopPod(usize),
    RemovePod(usize),
    Create(Name),
    Start(Name),
    StopContainer(Name),
    RemoveContainer(Name),
    /// The program ends by itself.
    End(Name, i32),
    CrashVm(usize),
    Exec(Name),
    /// The daemon is killed between two calls.
    Kill,
}

impl Action {
    /// The pod that the action is about.
    pub(super) fn pod(self) -> Option<usize> {
        match self {
            Action::RunPod(pod) | Action::StopPod(pod) | Action::RemovePod(pod) | Action::CrashVm(pod) => {
                Some(pod)
            }
            Action::Create(name)
            | Action::Start(name)
            | Action::StopContainer(name)
            | Action::RemoveContainer(name)
            | Action::End(name, _)
            | Action::Exec(name) => Some(name.0),
            Action::Kill => None,
        }
    }

    /// Draws the next action. Half of them make something.
    pub(super) fn draw(random: &mut StdRng, model: &Model) -> Action {
        let pod = random.random_range(0..PODS);
        let name = (pod, random.random_range(0..CONTAINERS));
        let stage = model.stage(name);
        match random.random_range(0..100) {
            0..20 => Action::RunPod(pod),
            20..40 => Action::Create(name),
            40..60 => Action::Start(name),
            60..65 => Action::Exec(name),
            65..72 => Action::StopContainer(name),
            72..79 => Action::RemoveContainer(name),
            79..86 if stage == Some(ContainerStage::Running) => Action::End(name, random.random_range(0..4)),
            86..89 if model.is_ready(pod) => Action::CrashVm(pod),
            89..93 => Action::StopPod(pod),
            93..97 => Action::RemovePod(pod),
            _ => Action::Kill,
        }
    }
}

/// Draws a fault for every second action.
pub(super) fn draw_fault(random: &mut StdRng) -> Option<(Fault, usize)> {
    let fault = match random.random_range(0..8) {
        0 => Fault::Fail,
        1 => Fault::Lose,
        2 => Fault::Cut,
        3 => Fault::FullDisk,
        _ => return None,
    };
    // Most calls have few points.
    let points_before = random.random_range(0..POINTS_BEFORE).min(random.random_range(0..POINTS_BEFORE));
    Some((fault, points_before))
}
