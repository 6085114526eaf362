//! The script of the fakes, and their observations.
//!
//! Each call of a backend has two points: before its effect ([`Script::step`]) and after it
//! ([`Script::done`]).
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
use crate::EarlierPods;
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

/// A single fault.
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
    /// The called VM ends.
    Crash,
}

/// A fault, and the number of points before it.
#[derive(Clone, Copy, Debug)]
struct PlannedFault {
    fault: Fault,
    points_before: usize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Bounds sent with commands.
    pub(crate) execs_within: Vec<Option<Duration>>,
    /// Whether agents hold commands up until their bounds.
    pub(crate) holds_execs: bool,
    /// How long a command's call is on its way to its agent.
    pub(crate) execs_on_the_way: Duration,
    /// Steps that fail.
    pub(crate) failing: BTreeSet<String>,
    /// Steps refused by the other side.
    pub(crate) refused: BTreeSet<String>,
    /// Steps hanging until the repair.
    pub(crate) hanging: BTreeSet<String>,
    /// The operator wants strict cgroups.
    pub(crate) strict_cgroups: bool,
    /// What becomes of pods of an earlier daemon.
    pub(crate) earlier: EarlierPods,
    /// The operator wants all volumes shared.
    pub(crate) share_all_volumes: bool,
    /// The operator wants templates.
    pub(crate) template: TemplateScope,
    /// Most pooled VMMs without a guest.
    pub(crate) spare_vmms: u8,
    /// Most spare VMs of the handler.
    pub(crate) spare_vms: u8,
    /// Agents of restored VMs do not report readiness.
    pub(crate) silent_restored: bool,
    /// Seals of the memory of restored VMs, and its first bytes.
    pub(crate) restored: Vec<(bool, Vec<u8>)>,
    /// A fault to come.
    planned: Option<PlannedFault>,
    /// The last fault, and its point.
    struck: Option<(Fault, String)>,
    /// A fault has killed the daemon.
    killed: bool,
    /// A fault ends the VM when its current call returns.
    crashes: bool,
    /// VMs ended by a fault, by the process id of their VMM.
    pub(crate) crashed: BTreeSet<u32>,
    /// Calls invalid for any VMM or agent.
    pub(crate) violations: Vec<String>,
    /// Every passed point, with its count.
    pub(crate) points: BTreeMap<String, usize>,
    /// Every step, in order.
    pub(crate) seen: Vec<String>,
    /// Pods with a network.
    pub(crate) networks: BTreeSet<String>,
    /// Supplementary groups of containers' users.
    pub(crate) groups: Vec<u32>,
    /// Binds, by container.
    pub(crate) binds: BTreeMap<String, Vec<(usize, Bind)>>,
    /// Host paths with mounts below.
    pub(crate) mounted_below: BTreeSet<PathBuf>,
    /// Containers with a damaged record: their resources are unknown.
    pub(crate) lost: BTreeSet<String>,
    /// The protocol of guests' agents; the newest if unset.
    pub(crate) protocol: Option<u32>,
    /// VMMs have no slots for volumes.
    pub(crate) without_volume_slots: bool,
    /// VMMs have no balloon.
    pub(crate) without_balloon: bool,
    /// Memory volumes of the node.
    pub(crate) memory_volumes: BTreeMap<PathBuf, MemoryFound>,
    /// Versions of published volumes sent to guests.
    pub(crate) published: Vec<PublishedVersion>,
    /// Notified when the node's volumes change.
    pub(crate) volumes_changed: watch::Sender<()>,
    /// Limits of volumes requested of agents.
    pub(crate) resized_volumes: Vec<(String, VolumeLimits)>,
    /// Logs moved away, by container, the first one first.
    pub(crate) moved_logs: BTreeMap<String, Vec<PathBuf>>,
    /// Sockets of the node named by the handler.
    pub(crate) host_sockets: Vec<PathBuf>,
    /// The node's plugins, if any.
    pub(crate) plugins: Option<Arc<dyn Plugins>>,
    /// Streams opened by programs of guests, waiting to be accepted.
    pub(crate) program_streams: VecDeque<UnixStream>,
    /// Connections requested of connectors: the container, the user and the socket.
    pub(crate) connections: Vec<(String, String, PathBuf)>,
    /// Started connectors have ended since.
    pub(crate) connectors_lost: bool,
    /// Images and disks opened for plugging, by their descriptor.
    pub(crate) opened: HashMap<RawFd, String>,
    /// Ids of removed images.
    pub(crate) removed_images: BTreeSet<String>,
    /// Leases on images, by id, and those held when all users were declared known.
    pub(crate) leases: BTreeMap<String, usize>,
    pub(crate) users_known_with: Option<BTreeMap<String, usize>>,
    /// The plan and the slots of the last container requested of the agent.
    pub(crate) created: Option<(ContainerPlan, ContainerSlots)>,
    /// VMs by the process id of their VMM.
    pub(crate) vms: HashMap<u32, Arc<FakeVm>>,
    /// Bytes written to stdout by containers.
    pub(crate) output: Vec<u8>,
    /// Output comes only after the program's end.
    pub(crate) late: bool,
    /// Bytes of output held by a guest. A program with more output waits until some are acknowledged. Zero
    /// for no limit.
    pub(crate) held_bytes: usize,
    /// How often an output stream breaks off in the middle of its bytes, alternately with an error and with a
    /// mere end.
    pub(crate) breaks: u32,
    /// Output stays open until everything in the container is killed.
    pub(crate) lingering: bool,
    /// How the agent refuses to start a program.
    pub(crate) unrunnable: Option<StartFailure>,
    /// VMs plug devices, but their answer is lost.
    pub(crate) unheard: bool,
    /// When programs end, by the guest's clock.
    pub(crate) exited_at_ns: i64,
    /// Programs ignore SIGTERM.
    pub(crate) stubborn: bool,
    /// Killed programs end once the VM's written bytes have been read so many times.
    pub(crate) flushing: u32,
    /// Bytes written by the VM so far, and between two reads.
    pub(crate) written_bytes: u64,
    pub(crate) written_bytes_each: u64,
    /// Guests read the node's clock.
    pub(crate) reads_clock: bool,
    /// Programs wait for a file lock, and end when their VMM is asked to interrupt them.
    pub(crate) waits_for_a_lock: bool,
    /// The configuration of the last guest.
    pub(crate) configured: Option<ConfigurePodRequest>,
    /// Wanted and existing pooled network namespaces.
    pub(crate) spare_networks_wanted: usize,
    pub(crate) spare_networks: usize,
    /// The settings left by the plugins of the next pods.
    pub(crate) settings: PodSettings,
    /// The answer of the next guests to them.
    pub(crate) replayed: ReplayedSettings,
    /// Last acknowledged count of a container's stdout.
    pub(crate) acknowledged: HashMap<String, u64>,
    /// The usage reported by guests.
    pub(crate) usage: UsageResponse,
    /// Bytes written to inputs.
    pub(crate) typed: Vec<u8>,
    /// Start offsets of streams.
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
            // Registered before the check, so no repair is missed.
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

    /// Whether the called VM ends now.
    pub(crate) fn take_crash(&self) -> bool {
        std::mem::take(&mut self.state().crashes)
    }

    /// Records an invalid call.
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

    /// Plans one fault after this many points.
    pub(crate) fn plan(&self, fault: Fault, points_before: usize) {
        self.state().planned = Some(PlannedFault { fault, points_before });
    }

    /// Ends the plan. Returns the fault and its point, if it happened.
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

    /// The running VMs.
    pub(crate) fn running(&self) -> Vec<Arc<FakeVm>> {
        self.state().vms.values().filter(|vm| vm.runs()).cloned().collect()
    }

    /// The only running VM.
    pub(crate) fn vm(&self) -> Arc<FakeVm> {
        let mut running = self.running();
        assert_eq!(running.len(), 1);
        running.remove(0)
    }
}

impl State {
    /// Counts a point, and returns the fault planned for it.
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

/// Waits for the earlier one: the deadline of a client of VMMs and agents, or the caller's limit.
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

/// A failure of an unresponsive side.
pub(crate) fn unreachable(text: impl Into<String>) -> BackendError {
    BackendError::new(BackendErrorKind::Unreachable, text.into())
}
