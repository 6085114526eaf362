//! The script that the fakes follow, and what they saw.
//!
//! Each call of a backend has two points: before its effect ([`Script::step`]) and after it ([`Script::done`]).
//! A planned [`Fault`] strikes at one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use proto_agent::agent::{ConfigurePodRequest, UsageResponse};
use runtime_share::Bind;
use runtime_spec::{ContainerPlan, ContainerSlots, StartFailure};
use tokio::sync::Notify;

use super::vm::FakeVm;
use crate::backend::{BackendError, BackendErrorKind};

/// Shared by all fakes of one world; outlives a daemon.
#[derive(Debug, Default)]
pub(crate) struct Script {
    state: Mutex<State>,
    /// Notified when steps hang and fail no more.
    repaired: Notify,
    cut: Notify,
}

/// A fault that strikes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails without an effect.
    Fail,
    /// The call has its effect, and its answer is lost.
    Lose,
    /// The daemon is killed, before the call or after it.
    Cut,
    /// The disk of the state is full for as long as the action takes.
    FullDisk,
}

/// A fault, and the number of points that it lets pass before it strikes.
#[derive(Clone, Copy, Debug)]
struct PlannedFault {
    fault: Fault,
    points_before: usize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Steps that fail.
    pub(crate) failing: BTreeSet<String>,
    /// Steps that do not end before the repair.
    pub(crate) hanging: BTreeSet<String>,
    /// A fault to come.
    planned: Option<PlannedFault>,
    /// The last fault that struck, and its point.
    struck: Option<(Fault, String)>,
    /// A fault has killed the daemon.
    killed: bool,
    /// Every point that was passed, and how often.
    pub(crate) points: BTreeMap<String, usize>,
    /// Every step, in order.
    pub(crate) seen: Vec<String>,
    /// Pods that have a network.
    pub(crate) networks: BTreeSet<String>,
    /// Binds, by container.
    pub(crate) binds: BTreeMap<String, Vec<(usize, Bind)>>,
    /// The plan and the slots of the last container that the agent was asked to create.
    pub(crate) created: Option<(ContainerPlan, ContainerSlots)>,
    /// VMs by the process id of their VMM.
    pub(crate) vms: HashMap<u32, Arc<FakeVm>>,
    /// Bytes that containers write to stdout.
    pub(crate) output: Vec<u8>,
    /// Output that comes only after the program's end.
    pub(crate) late: bool,
    /// How often an output stream breaks off in the middle of its bytes, with an error or with a mere end by turns.
    pub(crate) breaks: u32,
    /// Output that stays open until everything in the container is killed.
    pub(crate) lingering: bool,
    /// How the agent refuses to start a program.
    pub(crate) unrunnable: Option<StartFailure>,
    /// VMs plug devices, and nobody hears their answer.
    pub(crate) unheard: bool,
    /// When programs end, by the guest's clock.
    pub(crate) exited_at_ns: i64,
    /// Programs that ignore SIGTERM.
    pub(crate) stubborn: bool,
    /// The configuration of the last guest.
    pub(crate) configured: Option<ConfigurePodRequest>,
    /// Last acknowledged count of a container's stdout.
    pub(crate) acknowledged: HashMap<String, u64>,
    /// The usage that guests report.
    pub(crate) usage: UsageResponse,
    /// Bytes that were written to inputs.
    pub(crate) typed: Vec<u8>,
    /// Offsets that streams were opened at.
    pub(crate) offsets: Vec<u64>,
}

impl Script {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn fail(&self, step: &str) {
        self.state().failing.insert(step.to_owned());
    }

    pub(crate) fn hang(&self, step: &str) {
        self.state().hanging.insert(step.to_owned());
    }

    pub(crate) fn repair(&self) {
        let mut state = self.state();
        state.failing.clear();
        state.hanging.clear();
        drop(state);
        self.repaired.notify_waiters();
    }

    /// Plays a step: notes it, and hangs or fails as scripted.
    pub(crate) async fn step(&self, step: &str) -> Result<(), BackendError> {
        let fails = {
            let mut state = self.state();
            state.seen.push(step.to_owned());
            state.failing.contains(step)
        };
        loop {
            let repaired = self.repaired.notified();
            tokio::pin!(repaired);
            // Registered before the look, so that no repair is missed.
            repaired.as_mut().enable();
            if !self.state().hanging.contains(step) {
                break;
            }
            repaired.await;
        }
        self.point(step, false).await?;
        // Others get their turn, as with real calls.
        tokio::task::yield_now().await;
        if fails { Err(unreachable(format!("{step} was scripted to fail"))) } else { Ok(()) }
    }

    /// The second point of a step: it has had its effect, and its answer is on the way.
    pub(crate) async fn done(&self, step: &str) -> Result<(), BackendError> {
        self.point(step, true).await
    }

    async fn point(&self, step: &str, after: bool) -> Result<(), BackendError> {
        let name = step.split(' ').next().unwrap_or_default();
        let name = if after { format!("{name}, answered") } else { name.to_owned() };
        let strikes = self.state().strike(&name, after);
        match strikes {
            None => Ok(()),
            Some(Fault::Cut) => {
                self.state().killed = true;
                self.cut.notify_waiters();
                std::future::pending().await
            }
            Some(fault) => Err(unreachable(format!("{fault:?} at {name}"))),
        }
    }

    /// Plans one fault, which strikes after this many points.
    pub(crate) fn plan(&self, fault: Fault, points_before: usize) {
        self.state().planned = Some(PlannedFault { fault, points_before });
    }

    /// Ends the plan. Returns the fault that struck and its point, if one did.
    pub(crate) fn end_plan(&self) -> Option<(Fault, String)> {
        let mut state = self.state();
        (state.planned, state.killed) = (None, false);
        state.struck.take()
    }

    /// Waits until a fault kills the daemon.
    pub(crate) async fn killed(&self) {
        let mut cut = std::pin::pin!(self.cut.notified());
        cut.as_mut().enable();
        if !self.state().killed {
            cut.await;
        }
    }

    pub(crate) fn count(&self, step: &str) -> usize {
        self.state().seen.iter().filter(|seen| *seen == step).count()
    }

    /// VMs that run.
    pub(crate) fn running(&self) -> Vec<Arc<FakeVm>> {
        self.state().vms.values().filter(|vm| vm.runs()).cloned().collect()
    }

    /// The only VM that runs.
    pub(crate) fn vm(&self) -> Arc<FakeVm> {
        let mut running = self.running();
        assert_eq!(running.len(), 1);
        running.remove(0)
    }
}

impl State {
    /// Counts a point, and returns the fault that strikes there.
    fn strike(&mut self, name: &str, after: bool) -> Option<Fault> {
        *self.points.entry(name.to_owned()).or_default() += 1;
        let planned = self.planned.as_mut()?;
        let fits = match planned.fault {
            Fault::Fail => !after,
            Fault::Lose => after,
            Fault::Cut => true,
            Fault::FullDisk => false,
        };
        if !fits {
            return None;
        }
        if planned.points_before > 0 {
            planned.points_before -= 1;
            return None;
        }
        let fault = planned.fault;
        self.planned = None;
        self.struck = Some((fault, name.to_owned()));
        Some(fault)
    }
}

/// A failure of somebody who does not answer.
pub(crate) fn unreachable(text: impl Into<String>) -> BackendError {
    BackendError::new(BackendErrorKind::Unreachable, text.into())
}
