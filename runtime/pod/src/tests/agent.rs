//! An agent with fake containers: a few lines of text and an exit code each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use proto_agent::agent::{
    ClockReference, ClockStats, ConfigurePodRequest, PreparePodRequest, StatsResponse, StreamKind,
    UsageResponse,
};
use proto_vmm::{StopReason, StopReport};
use runtime_guest::{
    FailureReason, GuestError, ProcessExit, PublishedVersion, RefusedCode, ReplayedSettings, SignalTarget,
};
use runtime_pieces::Pieces;
use runtime_spans::GuestText;
use runtime_spec::{ContainerPlan, ContainerSlots, ExecPlan, Signal, User, VolumeLimits};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use super::Script;
use super::process::{FakeProcess, exit};
use super::script::{hang, unreachable};
use crate::backend::{Agent, BackendError, BackendErrorKind, Connection, Input, Output};

type Key = (String, String);

/// How a silent guest behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The guest hangs: its callers wait.
    Frozen,
    /// The guest is unreachable: its callers learn it at once.
    Unreachable,
}

#[derive(Debug)]
pub(crate) struct FakeAgent {
    script: Arc<Script>,
    pid: u32,
    stopped: watch::Sender<Option<StopReport>>,
    silence: watch::Sender<Option<Silence>>,
    processes: Mutex<HashMap<Key, FakeProcess>>,
    created: Mutex<BTreeMap<String, ContainerSlots>>,
    limits: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Killed containers still waiting for a lock held by the VMM.
    killed: Mutex<BTreeSet<String>>,
}

impl FakeAgent {
    pub(crate) fn new(script: Arc<Script>, pid: u32, stopped: watch::Sender<Option<StopReport>>) -> Self {
        FakeAgent {
            script,
            pid,
            stopped,
            silence: watch::Sender::new(None),
            processes: Mutex::default(),
            created: Mutex::default(),
            limits: Mutex::default(),
            killed: Mutex::default(),
        }
    }

    /// The waits of killed programs for locks have ended.
    pub(crate) fn interrupted(&self) {
        for container in std::mem::take(&mut *self.killed.lock().unwrap()) {
            self.process(&container, "").unwrap().end(137, false);
        }
    }

    /// The container's program ends by itself.
    pub(crate) fn end(&self, container_id: &str, exit_code: i32, oom_killed: bool) {
        let exited_at_ns = self.script.state().exited_at_ns;
        let end = exit(exit_code, oom_killed, exited_at_ns);
        self.process(container_id, "").unwrap().end_as(end);
    }

    pub(crate) fn containers(&self) -> usize {
        self.processes.lock().unwrap().keys().filter(|(_, exec)| exec.is_empty()).count()
    }

    /// The containers with a running first process.
    pub(crate) fn alive(&self) -> BTreeSet<String> {
        let processes = self.processes.lock().unwrap();
        let first = processes.iter().filter(|((_, exec_id), _)| exec_id.is_empty());
        first
            .filter(|(_, process)| process.runs())
            .map(|((container_id, _), _)| container_id.clone())
            .collect()
    }

    fn process(&self, container_id: &str, exec_id: &str) -> Result<FakeProcess, BackendError> {
        let key = (container_id.to_owned(), exec_id.to_owned());
        let found = self.processes.lock().unwrap().get(&key).cloned();
        found.ok_or_else(|| BackendError::new(BackendErrorKind::Guest, format!("no process {key:?}")))
    }

    /// Calls to an ended guest fail.
    async fn step(&self, step: &str) -> Result<(), BackendError> {
        self.step_of_vm(step, self.pid).await?;
        if self.stopped.borrow().is_some() { Err(unreachable("the connection broke")) } else { Ok(()) }
    }

    /// Plays a step of the VM or its guest. The VM may end in it, or the step hangs because the VM is frozen.
    pub(crate) async fn step_of_vm(&self, step: &str, pid: u32) -> Result<(), BackendError> {
        let played = self.script.step(step).await;
        if self.script.take_crash() {
            self.script.state().crashed.insert(pid);
            let reason = StopReason::GuestPanic { message: "no more".into() };
            super::vm::end(&self.stopped, reason, "");
        }
        let of_guest = step.starts_with("agent.") || step == "vm.connect";
        let silence = *self.silence.borrow();
        match silence.filter(|_| of_guest) {
            None => played,
            Some(Silence::Frozen) => hang(step).await,
            Some(Silence::Unreachable) => Err(unreachable("the connection broke")),
        }
    }

    /// The guest does not answer from now on.
    pub(crate) fn silence(&self, silence: Silence) {
        self.silence.send_replace(Some(silence));
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silence.borrow().is_some()
    }

    /// The running commands.
    pub(crate) fn commands(&self) -> BTreeSet<String> {
        let processes = self.processes.lock().unwrap();
        let running =
            processes.iter().filter(|((_, exec_id), process)| !exec_id.is_empty() && process.runs());
        running.map(|((_, exec_id), _)| exec_id.clone()).collect()
    }

    /// The container created with this slot, if any.
    pub(crate) fn user_of(&self, slot: u8) -> Option<String> {
        let created = self.created.lock().unwrap();
        let uses = |slots: &ContainerSlots| {
            slots.image == slot || slots.image_volumes.contains(&slot) || slots.block_devices.contains(&slot)
        };
        created.iter().find(|(_, slots)| uses(slots)).map(|(id, _)| id.clone())
    }

    /// The slots of the guest's containers, by container.
    pub(crate) fn created(&self) -> BTreeMap<String, ContainerSlots> {
        self.created.lock().unwrap().clone()
    }

    /// The last memory limit given to a container by an update.
    pub(crate) fn memory_max(&self, container_id: &str) -> Option<String> {
        self.limits.lock().unwrap().get(container_id)?.get("memory.max").cloned()
    }
}

#[async_trait]
impl Agent for FakeAgent {
    async fn prepare_pod(&self, _: PreparePodRequest) -> Result<(), BackendError> {
        self.step("agent.prepare").await?;
        self.script.done("agent.prepare").await
    }

    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<ReplayedSettings, BackendError> {
        self.step("agent.configure").await?;
        self.script.state().configured = Some(request);
        self.script.done("agent.configure").await?;
        Ok(self.script.state().replayed.clone())
    }

    async fn create_container(
        &self,
        plan: &ContainerPlan,
        slots: &ContainerSlots,
    ) -> Result<User, BackendError> {
        self.step("agent.create").await?;
        serde_json::to_vec(&plan.oci).unwrap();
        self.script.state().created = Some((plan.clone(), slots.clone()));
        let process = FakeProcess::new(self.script.state().output.clone());
        self.created.lock().unwrap().insert(plan.container_id.clone(), slots.clone());
        self.processes.lock().unwrap().insert((plan.container_id.clone(), String::new()), process);
        self.script.done("agent.create").await?;
        Ok(User { uid: 7, gid: 8, groups: self.script.state().groups.clone() })
    }

    async fn attach_host_sockets(&self, container_id: &str) -> Result<(), BackendError> {
        self.step("agent.attach_host_sockets").await?;
        self.process(container_id, "").map(drop)
    }

    async fn start_container(&self, container_id: &str) -> Result<(), BackendError> {
        self.step("agent.start").await?;
        if let Some(failure) = self.script.state().unrunnable {
            let message = GuestText("no executable \"app --token=x\"".into());
            let code = RefusedCode::NotFound;
            let reason = Some(FailureReason::Start(failure));
            return Err(GuestError::Refused { method: "StartContainer", message, code, reason }.into());
        }
        if !self.process(container_id, "")?.start() {
            return Err(self.script.violate(format!("container {container_id} is started twice")));
        }
        self.script.done("agent.start").await
    }

    async fn update_container(
        &self,
        container_id: &str,
        cgroup_files: BTreeMap<String, String>,
    ) -> Result<(), BackendError> {
        self.step(&format!("agent.update {cgroup_files:?}")).await?;
        self.process(container_id, "")?;
        self.limits.lock().unwrap().entry(container_id.to_owned()).or_default().extend(cgroup_files);
        self.script.done("agent.update").await
    }

    async fn resize_pod(&self, vcpus: u8, memory_slot: Option<u8>) -> Result<(), BackendError> {
        self.step(&format!("agent.resize {vcpus} {}", memory_slot.unwrap_or_default())).await
    }

    async fn publish_volume(&self, version: &PublishedVersion) -> Result<(), BackendError> {
        self.step("agent.publish_volume").await?;
        self.script.state().published.push(version.clone());
        self.script.done("agent.publish_volume").await
    }

    async fn resize_volume(&self, volume: &str, limits: VolumeLimits) -> Result<(), BackendError> {
        self.step("agent.resize_volume").await?;
        self.script.state().resized_volumes.push((volume.to_owned(), limits));
        self.script.done("agent.resize_volume").await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), BackendError> {
        self.step("agent.remove").await?;
        if let Ok(process) = self.process(container_id, "") {
            process.end(137, false);
        }
        self.processes.lock().unwrap().retain(|(container, _), _| container != container_id);
        self.created.lock().unwrap().remove(container_id);
        self.script.done("agent.remove").await
    }

    async fn exec(
        &self,
        container_id: &str,
        exec_id: &str,
        plan: &ExecPlan,
        within: Option<Duration>,
    ) -> Result<(), BackendError> {
        self.script.state().execs_within.push(within);
        let holds = self.script.state().holds_execs;
        if let Some(within) = within.filter(|_| holds) {
            tokio::time::sleep(within).await;
            return Err(BackendError::new(BackendErrorKind::Guest, "the process was not built in time"));
        }
        let on_the_way = self.script.state().execs_on_the_way;
        if !on_the_way.is_zero() {
            tokio::time::sleep(on_the_way).await;
        }
        self.step("agent.exec").await?;
        let args = plan.process.args().clone().unwrap_or_default();
        let fake = match args[0].as_str() {
            "echo" => FakeProcess::new(args[1].clone().into_bytes()),
            "flood" => FakeProcess::new(vec![b'x'; args[1].parse().unwrap()]),
            _ => FakeProcess::new(args.get(2).map(|text| text.clone().into_bytes()).unwrap_or_default()),
        };
        if args[0] != "sleep" {
            fake.end(if args[0] == "false" { 1 } else { 0 }, false);
        }
        self.processes.lock().unwrap().insert((container_id.to_owned(), exec_id.to_owned()), fake);
        Ok(())
    }

    async fn wait(&self, container_id: &str, exec_id: &str) -> Result<ProcessExit, BackendError> {
        self.step("agent.wait").await?;
        let mut stopped = self.stopped.subscribe();
        let mut silence = self.silence.subscribe();
        let mut ended = self.process(container_id, exec_id)?.ended();
        tokio::select! {
            end = ended.wait_for(Option::is_some) => Ok(end.unwrap().unwrap()),
            _ = silence.wait_for(|silence| *silence == Some(Silence::Unreachable)) => {
                Err(unreachable("the connection broke"))
            }
            _ = stopped.wait_for(Option::is_some) => Err(unreachable("the connection broke")),
        }
    }

    async fn signal(
        &self,
        container_id: &str,
        target: SignalTarget<'_>,
        signal: Signal,
    ) -> Result<Vec<u32>, BackendError> {
        let all = if target == SignalTarget::Container { " all" } else { "" };
        self.step(&format!("agent.signal {}{all}", signal.0)).await?;
        let exec_id = if let SignalTarget::Exec(exec_id) = target { exec_id } else { "" };
        let stubborn = self.script.state().stubborn;
        if signal == Signal::KILL && exec_id.is_empty() && self.script.state().waits_for_a_lock {
            self.killed.lock().unwrap().insert(container_id.to_owned());
            return Ok(vec![4711]);
        }
        if signal == Signal::KILL && self.script.state().flushing > 0 {
            return Ok(Vec::new());
        }
        if signal == Signal::KILL || !stubborn {
            self.process(container_id, exec_id)?.end(128 + i32::from(signal.0), false);
        }
        self.script.done("agent.signal").await.map(|()| Vec::new())
    }

    async fn stats(&self) -> Result<StatsResponse, BackendError> {
        self.step("agent.stats").await?;
        let reads_clock = self.script.state().reads_clock;
        let reference =
            if reads_clock { ClockReference::CLOCK_REFERENCE_PTP_KVM } else { Default::default() };
        let clock = Some(ClockStats { reference: reference.into(), ..Default::default() }).into();
        Ok(StatsResponse { memory_total: 100, memory_available: 60, clock, ..StatsResponse::default() })
    }

    async fn usage(&self) -> Result<UsageResponse, BackendError> {
        self.step("agent.usage").await?;
        Ok(self.script.state().usage.clone())
    }

    async fn reclaim(&self) -> Result<u64, BackendError> {
        self.step("agent.reclaim").await?;
        Ok(4096)
    }

    async fn shutdown(&self) -> Result<(), BackendError> {
        self.step("agent.shutdown").await
    }

    async fn output(
        &self,
        container_id: &str,
        kind: StreamKind,
        offset: u64,
    ) -> Result<Output, BackendError> {
        self.step("agent.output").await?;
        let stdout = kind == StreamKind::STREAM_KIND_STDOUT;
        if stdout {
            self.script.state().offsets.push(offset);
        }
        let process = self.process(container_id, "")?;
        let key = if stdout { container_id.to_owned() } else { format!("{container_id} stderr") };
        process.output(&self.script, kind, offset, self.stopped.subscribe(), key)
    }

    async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<Pieces, BackendError> {
        self.step("agent.exec_output").await?;
        let process = self.process(container_id, exec_id)?;
        Ok(Pieces::held(process.said(&self.script, kind, 0, self.stopped.subscribe())))
    }

    async fn input(&self, container_id: &str, exec_id: &str) -> Result<Box<dyn Input>, BackendError> {
        self.step("agent.input").await?;
        self.process(container_id, exec_id)?;
        Ok(Box::new(FakeInput { script: self.script.clone() }))
    }

    async fn port(&self, port: u16) -> Result<Box<dyn Connection>, BackendError> {
        self.step("agent.port").await?;
        if port != 80 {
            return Err(unreachable("connection refused"));
        }
        let (near, far) = tokio::io::duplex(64);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(far);
            let _ = tokio::io::copy(&mut read, &mut write).await;
            let _ = write.shutdown().await;
        });
        Ok(Box::new(near))
    }
}

/// Keeps everything written to any input; a connection to a port echoes it.
#[derive(Debug)]
struct FakeInput {
    script: Arc<Script>,
}

#[async_trait]
impl Input for FakeInput {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.script.state().typed.extend_from_slice(bytes);
        Ok(())
    }

    async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        self.script.state().typed.extend_from_slice(format!("[{columns}x{rows}]").as_bytes());
        Ok(())
    }

    async fn end(&mut self) -> io::Result<()> {
        self.script.state().typed.extend_from_slice(b"[end]");
        Ok(())
    }
}
