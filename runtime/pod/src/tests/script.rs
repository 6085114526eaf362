//! The script that the fakes follow, and what they saw.
//!
//! Each call of a backend has two points: before its effect ([`Script::step`]) and after it ([`Script::done`]).
//! A planned [`Fault`] strikes at one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proto_agent::agent::{ConfigurePodRequest, UsageResponse};
use runtime_guest::{PublishedVersion, ReplayedSettings};
use runtime_net::PodSettings;
use runtime_share::Bind;
use runtime_spec::{ContainerPlan, ContainerSlots, StartFailure, TemplateScope, VolumeLimits};
use tokio::sync::{Notify, watch};

use super::vm::FakeVm;
use crate::backend::{BackendError, BackendErrorKind, MemoryFound};
use crate::plugins::{NoPlugins, Plugins};

/// The point of a commit of the store.
pub(crate) const COMMIT: &str = "store.commit";

/// The longest deadline of a call to a VMM or an agent.
const DEADLINE: Duration = Duration::from_secs(120);

/// Shared by all fakes of one world; outlives a daemon.
#[derive(Debug, Default)]
pub(crate) struct Script {
    state: Mutex<State>,
    /// Notified when steps hang and fail no more.
    repaired: Notify,
    /// Notified when a program of a guest has opened a stream.
    pub(crate) dialled: Notify,
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
    /// The call has no effect, and is answered by its deadline alone.
    Hang,
    /// The VM that is called ends.
    Crash,
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
    /// Steps that the other side refuses.
    pub(crate) refused: BTreeSet<String>,
    /// Steps that do not end before the repair.
    pub(crate) hanging: BTreeSet<String>,
    /// The operator wants strict cgroups.
    pub(crate) strict_cgroups: bool,
    /// The operator wants all volumes shared.
    pub(crate) share_all_volumes: bool,
    /// The operator wants templates.
    pub(crate) template: TemplateScope,
    /// Most VMMs without a guest that wait.
    pub(crate) spare_vmms: u8,
    /// Most spare VMs of the handler.
    pub(crate) spare_vms: u8,
    /// Agents of VMs that were restored do not say that they serve.
    pub(crate) silent_restored: bool,
    /// Seals of the memory that VMs were restored from, and what it began with.
    pub(crate) restored: Vec<(bool, Vec<u8>)>,
    /// A fault to come.
    planned: Option<PlannedFault>,
    /// The last fault that struck, and its point.
    struck: Option<(Fault, String)>,
    /// A fault has killed the daemon.
    killed: bool,
    /// A fault ends the VM whose call comes back next.
    crashes: bool,
    /// VMs that a fault has ended, by the process id of their VMM.
    pub(crate) crashed: BTreeSet<u32>,
    /// Calls that no VMM and no agent would have taken.
    pub(crate) violations: Vec<String>,
    /// Every point that was passed, and how often.
    pub(crate) points: BTreeMap<String, usize>,
    /// Every step, in order.
    pub(crate) seen: Vec<String>,
    /// Pods that have a network.
    pub(crate) networks: BTreeSet<String>,
    /// Supplementary groups of containers' users.
    pub(crate) groups: Vec<u32>,
    /// Binds, by container.
    pub(crate) binds: BTreeMap<String, Vec<(usize, Bind)>>,
    /// Containers whose record was damaged: nobody knows what was made for them.
    pub(crate) lost: BTreeSet<String>,
    /// The protocol that guests' agents speak; the newest where none is named.
    pub(crate) protocol: Option<u32>,
    /// VMMs have no slots for volumes.
    pub(crate) without_volume_slots: bool,
    /// VMMs have no balloon.
    pub(crate) without_balloon: bool,
    /// Memory volumes of the node.
    pub(crate) memory_volumes: BTreeMap<PathBuf, MemoryFound>,
    /// Versions of published volumes that guests were sent.
    pub(crate) published: Vec<PublishedVersion>,
    /// Notified when the node's volumes change.
    pub(crate) volumes_changed: watch::Sender<()>,
    /// Bounds that agents were asked to give to volumes.
    pub(crate) resized_volumes: Vec<(String, VolumeLimits)>,
    /// Logs that were moved away, by container, the first one first.
    pub(crate) moved_logs: BTreeMap<String, Vec<PathBuf>>,
    /// Sockets of the node that the handler names.
    pub(crate) host_sockets: Vec<PathBuf>,
    /// The node's plugins; none where there are none.
    pub(crate) plugins: Option<Arc<dyn Plugins>>,
    /// Streams that programs of guests opened, for the next who takes one.
    pub(crate) program_streams: VecDeque<UnixStream>,
    /// Connections that connectors were asked for: the container, the user and the socket.
    pub(crate) connections: Vec<(String, String, PathBuf)>,
    /// Connectors that were started have ended since.
    pub(crate) connectors_lost: bool,
    /// Images and disks that were opened to be plugged, by their descriptor.
    pub(crate) opened: HashMap<RawFd, String>,
    /// Ids of images that were removed.
    pub(crate) removed_images: BTreeSet<String>,
    /// Leases on images, by id, and those that were held when all users were said to be known.
    pub(crate) leases: BTreeMap<String, usize>,
    pub(crate) users_known_with: Option<BTreeMap<String, usize>>,
    /// The plan and the slots of the last container that the agent was asked to create.
    pub(crate) created: Option<(ContainerPlan, ContainerSlots)>,
    /// VMs by the process id of their VMM.
    pub(crate) vms: HashMap<u32, Arc<FakeVm>>,
    /// Bytes that containers write to stdout.
    pub(crate) output: Vec<u8>,
    /// Output that comes only after the program's end.
    pub(crate) late: bool,
    /// Bytes of output that a guest holds; a program that has written more waits until some are acknowledged. All where
    /// it is zero.
    pub(crate) held_bytes: usize,
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
    /// Programs that wait for a file lock, and end when their VMM is asked to interrupt them.
    pub(crate) waits_for_a_lock: bool,
    /// The configuration of the last guest.
    pub(crate) configured: Option<ConfigurePodRequest>,
    /// Network namespaces that are to wait, and those that do.
    pub(crate) spare_networks_wanted: usize,
    pub(crate) spare_networks: usize,
    /// The settings that the plugins of the next pods leave.
    pub(crate) settings: PodSettings,
    /// The answer of the next guests to them.
    pub(crate) replayed: ReplayedSettings,
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

    pub(crate) fn plugins(&self) -> Arc<dyn Plugins> {
        self.state().plugins.clone().unwrap_or_else(|| Arc::new(NoPlugins))
    }

    pub(crate) fn fail(&self, step: &str) {
        self.state().failing.insert(step.to_owned());
    }

    pub(crate) fn refuse(&self, step: &str) {
        self.state().refused.insert(step.to_owned());
    }

    pub(crate) fn hang(&self, step: &str) {
        self.state().hanging.insert(step.to_owned());
    }

    pub(crate) fn repair(&self) {
        let mut state = self.state();
        state.failing.clear();
        state.refused.clear();
        state.hanging.clear();
        drop(state);
        self.repaired.notify_waiters();
    }

    /// Plays a step: notes it, and hangs or fails as scripted.
    pub(crate) async fn step(&self, step: &str) -> Result<(), BackendError> {
        let (fails, refused) = {
            let mut state = self.state();
            state.seen.push(step.to_owned());
            (state.failing.contains(step), state.refused.contains(step))
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
        if refused {
            return Err(BackendError::new(
                BackendErrorKind::Refused,
                format!("{step} was scripted to be refused"),
            ));
        }
        if fails { Err(unreachable(format!("{step} was scripted to fail"))) } else { Ok(()) }
    }

    /// The second point of a step: it has had its effect, and its answer is on the way.
    pub(crate) async fn done(&self, step: &str) -> Result<(), BackendError> {
        self.point(step, true).await
    }

    /// Whether the VM that was called ends now.
    pub(crate) fn take_crash(&self) -> bool {
        std::mem::take(&mut self.state().crashes)
    }

    /// Notes a call that nobody would have taken.
    pub(crate) fn violate(&self, text: String) -> BackendError {
        self.state().violations.push(text.clone());
        BackendError::new(BackendErrorKind::Refused, text)
    }

    /// Passes a point: each step has two, as each commit has.
    pub(crate) async fn point(&self, step: &str, after: bool) -> Result<(), BackendError> {
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
            Some(Fault::Hang) => hang(&name).await,
            Some(Fault::Crash) => {
                self.state().crashes = true;
                Err(unreachable(format!("the VM ended at {name}")))
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
            // Whether a process ends is asked without a deadline.
            Fault::Hang => !after && name != "agent.wait" && name != COMMIT,
            Fault::Crash => !after && has_vm(name),
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

/// Whether a call is one to a VM or its agent.
fn has_vm(name: &str) -> bool {
    name.starts_with("agent.")
        || (name.starts_with("vm.") && !["vm.spawn", "vm.attach", "vm.kill", "vm.shutdown"].contains(&name))
}

/// Waits for what comes first: the deadline that a client of VMMs and agents has, or the caller's bound.
pub(crate) async fn hang(name: &str) -> Result<(), BackendError> {
    // Calls without a deadline of their own.
    if name == "agent.wait"
        || ["network.setup", "network.teardown", "shares.bind", "shares.unbind"].contains(&name)
        || ["vm.wait_ready", "vm.resized", "vm.shutdown"].contains(&name)
    {
        return std::future::pending().await;
    }
    tokio::time::sleep(DEADLINE).await;
    Err(unreachable(format!("no answer to {name} in time")))
}

/// A failure of somebody who does not answer.
pub(crate) fn unreachable(text: impl Into<String>) -> BackendError {
    BackendError::new(BackendErrorKind::Unreachable, text.into())
}
