//! One step of a walk: actions, alone or two at once, with or without a fault, and the check of their
//! results.

use std::time::Duration;

use super::action::Action;
use super::calls::Call;
use super::kept;
use super::life::{End, Walk, settled};
use super::model::{Answer, Answered, Model};
use super::observed::{no_disk_unused, vm_of};
use super::permits::Under;
use crate::tests::{Fault, World};

/// How long a call may take in any case. The longest waits for a hanging guest, several times.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(1200);

impl Walk {
    pub(super) async fn perform(
        &mut self,
        world: &World,
        actions: &[Action],
        fault: Option<(Fault, usize)>,
    ) -> Result<End, String> {
        if actions[0].kills() {
            self.note(format!("{actions:?}"));
            return self.killed(world, actions);
        }
        let calls = self.calls(actions, fault.is_some());
        let pids: Vec<(usize, Option<u32>)> =
            self.model.pods.iter().map(|(number, pod)| (*number, pid(world, &pod.id))).collect();
        if let Some((fault, points_before)) = fault {
            world.script.plan(fault, points_before);
        }
        let full = matches!(fault, Some((Fault::FullDisk, _)));
        world.fill_disk(full);
        let answers = futures::future::join_all(calls.iter().map(|call| call.make(world)));
        let answers = tokio::select! {
            biased;
            () = world.script.killed() => None,
            answers = tokio::time::timeout(ANSWERED_WITHIN, answers) => Some(answers),
        };
        world.fill_disk(false);
        let Some(answers) = answers else {
            self.note(format!("{actions:?}: killed at {:?}", world.script.end_plan()));
            return self.killed(world, actions);
        };
        let answers = answers.map_err(|_| format!("{actions:?}: a call is left waiting"))?;
        let answered: Vec<Answered> = actions.iter().copied().zip(answers).collect();
        self.remember(&answered, &calls);
        let either = actions.iter().any(|action| self.model.answer(*action) == Answer::Either);
        let expected = self.model.after(&answered);
        // If a VM ends during a call, the answer is open.
        let crash = expected.is_empty()
            && actions.len() > 1
            && actions.iter().any(|one| matches!(one, Action::CrashVm(_)));
        let exact = fault.is_none() && !either && !crash;
        let observed = settled(world, exact.then_some(&*expected)).await;
        let struck = world.script.end_plan().or_else(|| full.then(|| (Fault::FullDisk, String::new())));
        self.note(format!("{actions:?}, {struck:?}: {answered:?}"));
        if let Some((Fault::Cut, _)) = struck {
            return self.killed(world, actions);
        }
        let observed = observed?;
        if struck.is_none() && !either && !crash {
            self.check_exactly(world, &answered, &expected, &observed)?;
            self.model = observed;
        } else {
            let crashed = std::mem::take(&mut world.script.state().crashed);
            for (number, _) in pids.iter().filter(|(_, pid)| pid.is_some_and(|pid| crashed.contains(&pid))) {
                self.end_vm_under(*number, actions);
            }
            self.check_loosely(&answered, &observed)?;
            self.model = observed;
        }
        kept::check(world)?;
        self.check_logs(world)?;
        if struck.is_none() {
            return Ok(End::Finished);
        }
        self.faults += 1;
        // A client asks again where it was refused for the fault.
        match &answered[..] {
            [(action, Err(_))] if self.model.answer(*action) == Answer::Done => {
                Box::pin(self.perform(world, actions, None)).await
            }
            _ => Ok(End::Finished),
        }
    }

    pub(super) fn calls(&mut self, actions: &[Action], meet_fault: bool) -> Vec<Call> {
        let mut calls = Vec::new();
        for action in actions {
            self.serial += 1;
            calls.push(Call::new(*action, &self.model, self.serial, meet_fault));
        }
        calls
    }

    /// A fault has ended a VM during these actions: a container ended by one of them may have ended before.
    fn end_vm_under(&mut self, number: usize, actions: &[Action]) {
        let before = self.model.clone();
        self.model.end_vm(number);
        for action in actions {
            if let Action::End(name, _) | Action::StopContainer(name) | Action::RemoveContainer(name) = action
                && let Some(one) = before.container(*name)
            {
                self.model.change(*name, |open| open.stage = one.stage);
            }
        }
    }

    /// Remembers newly known objects of clients.
    pub(super) fn remember(&mut self, answered: &[Answered], calls: &[Call]) {
        for ((action, answer), call) in answered.iter().zip(calls) {
            match (action, answer) {
                (Action::RunPod(_), Ok(Some(id))) => drop(self.known.insert(id.clone())),
                (Action::Create(..), Ok(Some(id))) => drop(self.logs.insert(id.clone(), call.log())),
                _ => {}
            }
        }
    }

    /// Without a fault, answers and lists are those of one order of the actions.
    fn check_exactly(
        &self,
        world: &World,
        answered: &[Answered],
        expected: &[Model],
        observed: &Model,
    ) -> Result<(), String> {
        if expected.is_empty() {
            return Err(format!("{answered:?} is not answered as predicted: {:?}", self.model));
        }
        if !expected.contains(observed) {
            return Err(format!("{answered:?}: the lists have {observed:?}, not {expected:?}"));
        }
        let [(action, Ok(_))] = answered else { return Ok(()) };
        match action {
            Action::Create(name, shape) if shape.disk.is_some() => {
                no_disk_unused(world, &observed.pods[&name.0].id)
            }
            Action::Update(name, mib) => {
                let vm = vm_of(&world.script, &observed.pods[&name.0].id);
                let id = observed.container_id(*name).unwrap_or_default();
                let limit = vm.and_then(|vm| vm.agent.memory_max(id));
                match limit.is_none_or(|limit| limit == (mib << 20).to_string()) {
                    true => Ok(()),
                    false => Err(format!("the guest does not limit container {name:?} to {mib} MiB")),
                }
            }
            _ => Ok(()),
        }
    }

    /// With a fault, nothing is lost, doubled or withdrawn, and refused actions have changed nothing.
    fn check_loosely(&self, answered: &[Answered], observed: &Model) -> Result<(), String> {
        let actions: Vec<Action> = answered.iter().map(|(action, _)| *action).collect();
        let under = Under { actions: &actions, known: &self.known, recovery_struck: false };
        self.model.permits(under, observed)?;
        let [(action, answer)] = answered else { return Ok(()) };
        match (action, answer) {
            (Action::Update(name, _), Err(_)) => {
                let mib = |model: &Model| model.container(*name).map(|one| one.memory_mib);
                if mib(&self.model) != mib(observed) {
                    return Err(format!("a refused update has changed {name:?} to {:?} MiB", mib(observed)));
                }
            }
            (Action::Create(name, _), Ok(Some(id))) if observed.container_id(*name) != Some(id) => {
                return Err(format!("container {name:?} was made and is not listed"));
            }
            (Action::Create(name, _), Err(_))
                if observed.container_id(*name) != self.model.container_id(*name) =>
            {
                return Err(format!("container {name:?} was not made and is listed"));
            }
            (Action::RunPod(number), Ok(Some(id)))
                if observed.pods.get(number).is_none_or(|pod| pod.id != *id) =>
            {
                return Err(format!("pod {number} was started and is not listed"));
            }
            (Action::StopPod(number), Ok(_)) if observed.is_ready(*number) => {
                return Err(format!("pod {number} was stopped and is ready"));
            }
            (Action::RemovePod(number), Ok(_)) if observed.pods.contains_key(number) => {
                return Err(format!("pod {number} was removed and is listed"));
            }
            (Action::RemoveContainer(name), Ok(_)) if observed.container(*name).is_some() => {
                return Err(format!("container {name:?} was removed and is listed"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn pid(world: &World, pod_id: &str) -> Option<u32> {
    vm_of(&world.script, pod_id).map(|vm| vm.process_id())
}
