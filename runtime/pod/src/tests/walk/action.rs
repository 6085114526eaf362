//! The actions of a walk, and how they are drawn.
//!
//! Each walk has random frequencies for each kind of action and of fault. Some do little but restart the
//! daemon, others fill one pod with containers. Together they cover more than walks with a little of
//! everything.

use rand::Rng;
use rand::rngs::StdRng;
use runtime_store::Table;

use super::model::{ContainerStage, Model, Name};
use crate::tests::{Fault, Silence};

/// Most pods of a walk.
const PODS_MAX: usize = 3;
/// Most containers of a pod in a walk.
const CONTAINERS: usize = 3;
/// Most points before a fault: a pod's start has the largest number.
const POINTS_BEFORE: usize = 20;
/// Points of a call with few of them.
const FEW_POINTS: usize = 6;
/// Number of images: more than a VM's slots for them.
const IMAGES: u8 = 30;
/// Number of disks: more than a VM's slots for them. A container writes to a disk with an even number.
const DISKS: u8 = 8;
/// Requested memory limits, in MiB; zero for none.
const LIMITS_MIB: [i64; 4] = [0, 64, 200, 900];
/// One action. Pods and containers are named by small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    RunPod(usize),
    StopPod(usize),
    RemovePod(usize),
    Create(Name, Shape),
    Start(Name),
    StopContainer(Name),
    RemoveContainer(Name),
    /// The container has this limit of memory from now on, in MiB.
    Update(Name, i64),
    ReopenLog(Name),
    Exec(Name),
    /// The program ends by itself.
    End(Name, i32),
    CrashVm(usize),
    /// The guest does not answer from now on.
    Silence(usize, Silence),
    /// The daemon is killed between two calls.
    Kill,
    /// The node is started again.
    Reboot,
    /// The daemon is killed, and one value of this table is damaged.
    Damage(Table),
}

/// The devices and the limit of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) image: u8,
    /// The first of two images mounted by the container, if any.
    pub(super) volumes: Option<u8>,
    pub(super) host_mounts: u8,
    pub(super) disk: Option<u8>,
    pub(super) memory_mib: i64,
}

/// The ways of one walk.
#[derive(Debug)]
pub(super) struct Ways {
    pods: usize,
    /// By kind of action.
    weights: [u32; KINDS],
    /// The share of actions with a fault, in percent.
    faults: u32,
    /// The share of concurrent pairs of actions, in percent.
    pairs: u32,
    /// The possible faults.
    kinds: Vec<Fault>,
    /// Whether output comes late, and how much of it a guest holds.
    pub(super) late: bool,
    pub(super) held_bytes: usize,
    /// The share of starts with broken output, in percent.
    pub(super) breaks: u32,
}

/// Kinds of actions.
const KINDS: usize = 16;

/// The usual weights, in the order of [`Ways::action`].
const USUAL: [u32; KINDS] = [16, 4, 4, 20, 20, 6, 7, 3, 2, 3, 8, 3, 2, 4, 1, 1];

/// Indispensable kinds for a walk: the creation of pods and containers.
const NEEDED: [usize; 3] = [0, 3, 4];

impl Action {
    /// The action's pod.
    pub(super) fn pod(self) -> Option<usize> {
        match self {
            Action::RunPod(pod)
            | Action::StopPod(pod)
            | Action::RemovePod(pod)
            | Action::CrashVm(pod)
            | Action::Silence(pod, _) => Some(pod),
            Action::Create(name, _)
            | Action::Start(name)
            | Action::StopContainer(name)
            | Action::RemoveContainer(name)
            | Action::Update(name, _)
            | Action::ReopenLog(name)
            | Action::End(name, _)
            | Action::Exec(name) => Some(name.0),
            Action::Kill | Action::Reboot | Action::Damage(_) => None,
        }
    }

    /// Whether the daemon ends with it.
    pub(super) fn kills(self) -> bool {
        matches!(self, Action::Kill | Action::Reboot | Action::Damage(_))
    }
}

impl Shape {
    fn draw(random: &mut StdRng) -> Shape {
        let image = random.random_range(0..IMAGES);
        Shape {
            image,
            volumes: random.random_ratio(1, 3).then(|| random.random_range(0..IMAGES)),
            host_mounts: random.random_range(0..3),
            disk: random.random_ratio(1, 2).then(|| random.random_range(1..=DISKS)),
            memory_mib: LIMITS_MIB[random.random_range(0..LIMITS_MIB.len())],
        }
    }

    /// The images mounted by the container beside its own.
    pub(super) fn volume_images(self) -> Vec<u8> {
        self.volumes.map(|first| vec![first, (first + 1) % IMAGES]).unwrap_or_default()
    }
}

impl Ways {
    pub(super) fn draw(random: &mut StdRng) -> Ways {
        let mut weights = USUAL;
        for (kind, weight) in weights.iter_mut().enumerate() {
            let factor = [0, 1, 1, 4][random.random_range(0..4)];
            *weight *= if NEEDED.contains(&kind) { u32::max(factor, 1) } else { factor };
        }
        let all = [Fault::Fail, Fault::Lose, Fault::Cut, Fault::FullDisk, Fault::Hang, Fault::Crash];
        let kinds = match random.random_range(0..3) {
            0 => vec![all[random.random_range(0..all.len())]],
            _ => all.to_vec(),
        };
        Ways {
            pods: random.random_range(1..=PODS_MAX),
            weights,
            faults: [0, 30, 60][random.random_range(0..3)],
            pairs: [0, 0, 30][random.random_range(0..3)],
            kinds,
            late: random.random_ratio(1, 4),
            held_bytes: [0, 300][random.random_range(0..2)],
            breaks: [0, 40][random.random_range(0..2)],
        }
    }

    /// Draws the next actions: one, or two at once.
    pub(super) fn actions(&self, random: &mut StdRng, model: &Model) -> Vec<Action> {
        let first = self.useful_action(random, model);
        let alone = |action: Action| action.kills() || matches!(action, Action::Silence(..));
        if alone(first) || !random.random_ratio(self.pairs, 100) {
            return vec![first];
        }
        match self.useful_action(random, model) {
            second if alone(second) => vec![first],
            second => vec![first, second],
        }
    }

    /// Draws an action, mostly one with an effect: one without effect in ten is enough.
    fn useful_action(&self, random: &mut StdRng, model: &Model) -> Action {
        loop {
            let action = self.action(random, model);
            if model.is_touched_by(action) || random.random_ratio(1, 10) {
                return action;
            }
        }
    }

    fn action(&self, random: &mut StdRng, model: &Model) -> Action {
        loop {
            let pod = random.random_range(0..self.pods);
            let name = (pod, random.random_range(0..CONTAINERS));
            let runs = model.stage(name) == Some(ContainerStage::Running);
            let answers = model.is_ready(pod) && !model.is_silent(pod);
            let mut at = random.random_range(0..self.weights.iter().sum());
            let kind = self.weights.iter().position(|weight| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            return match kind.unwrap_or_default() {
                0 => Action::RunPod(pod),
                1 => Action::StopPod(pod),
                2 => Action::RemovePod(pod),
                3 => Action::Create(name, Shape::draw(random)),
                4 => Action::Start(name),
                5 => Action::StopContainer(name),
                6 => Action::RemoveContainer(name),
                7 => Action::Update(name, LIMITS_MIB[random.random_range(1..LIMITS_MIB.len())]),
                8 => Action::ReopenLog(name),
                9 => Action::Exec(name),
                10 if runs && answers => Action::End(name, random.random_range(0..4)),
                11 if model.is_ready(pod) => Action::CrashVm(pod),
                12 if answers => {
                    Action::Silence(pod, [Silence::Frozen, Silence::Unreachable][random.random_range(0..2)])
                }
                13 => Action::Kill,
                14 => Action::Reboot,
                15 => Action::Damage(Table::ALL[random.random_range(0..Table::ALL.len())]),
                _ => continue,
            };
        }
    }

    /// Draws a call for a daemon during its recovery.
    pub(super) fn early_call(&self, random: &mut StdRng, model: &Model) -> Option<Action> {
        let action = self.useful_action(random, model);
        let befalls = matches!(action, Action::Silence(..) | Action::CrashVm(_) | Action::End(..));
        (!action.kills() && !befalls && random.random_ratio(1, 2)).then_some(action)
    }

    /// Draws a fault for some of the actions, and the number of points before it.
    pub(super) fn fault(&self, random: &mut StdRng) -> Option<(Fault, usize)> {
        if !random.random_ratio(self.faults, 100) {
            return None;
        }
        let fault = self.kinds[random.random_range(0..self.kinds.len())];
        // Most calls have few points.
        let most = [POINTS_BEFORE, FEW_POINTS][random.random_range(0..2)];
        let points_before = random.random_range(0..most);
        Some((fault, points_before))
    }
}
