//! An agent whose containers are a few lines of text and an exit code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use proto_agent::agent::{ConfigurePodRequest, StatsResponse, StreamKind, UsageResponse};
use proto_vmm::StopReport;
use runtime_guest::{FailureReason, GuestError, ProcessExit, RefusedCode, SignalTarget};
use runtime_pieces::Pieces;
use runtime_spec::{ContainerPlan, ContainerSlots, ExecPlan, ExitReason, Signal, User};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::watch;

use super::Script;
use super::script::unreachable;
use crate::backend::{Acknowledge, Agent, BackendError, BackendErrorKind, Connection, Input, Output};

type Key = (String, String);

/// Bytes that come before a stream breaks off: in the middle of a line.
const BROKEN_OFF_BYTES: u64 = 1001;

/// The end of a connection that was reset.
struct Failing;

impl AsyncRead for Failing {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeAgent {
    script: Arc<Script>,
    stopped: watch::Receiver<Option<StopReport>>,
    processes: Mutex<HashMap<Key, FakeProcess>>,
}

#[derive(Clone, Debug)]
struct FakeProcess {
    ended: watch::Sender<Option<ProcessExit>>,
    stdout: Vec<u8>,
}

fn exit(exit_code: i32, oom_killed: bool, exited_at_ns: i64) -> ProcessExit {
    let reason = match exit_code {
        _ if oom_killed => ExitReason::OomKilled,
        0 => ExitReason::Completed,
        _ => ExitReason::Error,
    };
    ProcessExit { exit_code, reason, exited_at_ns }
}

impl FakeProcess {
    fn new(stdout: Vec<u8>) -> Self {
        FakeProcess { ended: watch::Sender::new(None), stdout }
    }

    fn end(&self, exit_code: i32, oom_killed: bool) {
        self.end_as(exit(exit_code, oom_killed, 0));
    }

    fn end_as(&self, end: ProcessExit) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(end);
            first
        });
    }
}

impl FakeAgent {
    pub(crate) fn new(script: Arc<Script>, stopped: watch::Receiver<Option<StopReport>>) -> Self {
        FakeAgent { script, stopped, processes: Mutex::default() }
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

    /// The containers whose first process has not ended.
    pub(crate) fn alive(&self) -> BTreeSet<String> {
        let processes = self.processes.lock().unwrap();
        let first = processes.iter().filter(|((_, exec_id), _)| exec_id.is_empty());
        first
            .filter(|(_, process)| process.ended.borrow().is_none())
            .map(|((container_id, _), _)| container_id.clone())
            .collect()
    }

    fn process(&self, container_id: &str, exec_id: &str) -> Result<FakeProcess, BackendError> {
        let key = (container_id.to_owned(), exec_id.to_owned());
        let found = self.processes.lock().unwrap().get(&key).cloned();
        found.ok_or_else(|| BackendError::new(BackendErrorKind::Refused, format!("no process {key:?}")))
    }

    /// The output of a process from this byte on.
    fn said(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
        offset: usize,
    ) -> Result<DuplexStream, BackendError> {
        let process = self.process(container_id, exec_id)?;
        let stdout = kind == StreamKind::STREAM_KIND_STDOUT;
        let bytes = if stdout { process.stdout[offset..].to_vec() } else { Vec::new() };
        let (mut writer, reader) = tokio::io::duplex(64 << 10);
        let (mut ended, mut stopped) = (process.ended.subscribe(), self.stopped.clone());
        let script = self.script.clone();
        tokio::spawn(async move {
            let late = script.state().late;
            if !late {
                let _ = writer.write_all(&bytes).await;
            }
            tokio::select! {
                _ = ended.wait_for(Option::is_some) => {}
                _ = stopped.wait_for(Option::is_some) => {}
            }
            if late {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _ = writer.write_all(&bytes).await;
            }
            while script.state().lingering && script.count("agent.signal 9 all") == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(reader)
    }

    /// The stream, or its first bytes alone where it is to break off.
    fn broken_off(&self, said: DuplexStream) -> Box<dyn AsyncRead + Send + Unpin> {
        let mut state = self.script.state();
        let Some(left) = state.breaks.checked_sub(1) else { return Box::new(said) };
        state.breaks = left;
        let beginning = said.take(BROKEN_OFF_BYTES);
        if left % 2 == 0 { Box::new(beginning) } else { Box::new(beginning.chain(Failing)) }
    }

    /// Calls to a guest that has ended fail.
    async fn step(&self, step: &str) -> Result<(), BackendError> {
        self.script.step(step).await?;
        if self.stopped.borrow().is_some() { Err(unreachable("the connection broke")) } else { Ok(()) }
    }
}

#[async_trait]
impl Agent for FakeAgent {
    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<(), BackendError> {
        self.step("agent.configure").await?;
        self.script.state().configured = Some(request);
        self.script.done("agent.configure").await
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
        self.processes.lock().unwrap().insert((plan.container_id.clone(), String::new()), process);
        self.script.done("agent.create").await?;
        Ok(User { uid: 7, gid: 8, groups: Vec::new() })
    }

    async fn start_container(&self, container_id: &str) -> Result<(), BackendError> {
        self.step("agent.start").await?;
        if let Some(failure) = self.script.state().unrunnable {
            let (message, code) = ("no".into(), RefusedCode::NotFound);
            let reason = Some(FailureReason::Start(failure));
            return Err(GuestError::Refused { method: "StartContainer", message, code, reason }.into());
        }
        self.process(container_id, "")?;
        self.script.done("agent.start").await
    }

    async fn update_container(
        &self,
        container_id: &str,
        cgroup_files: BTreeMap<String, String>,
    ) -> Result<(), BackendError> {
        self.step(&format!("agent.update {cgroup_files:?}")).await?;
        self.process(container_id, "").map(drop)
    }

    async fn resize_pod(&self, vcpus: u8, memory_slot: Option<u8>) -> Result<(), BackendError> {
        self.step(&format!("agent.resize {vcpus} {}", memory_slot.unwrap_or_default())).await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), BackendError> {
        self.step("agent.remove").await?;
        if let Ok(process) = self.process(container_id, "") {
            process.end(137, false);
        }
        self.processes.lock().unwrap().retain(|(container, _), _| container != container_id);
        self.script.done("agent.remove").await
    }

    async fn exec(&self, container_id: &str, exec_id: &str, plan: &ExecPlan) -> Result<(), BackendError> {
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
        let mut ended = self.process(container_id, exec_id)?.ended.subscribe();
        let mut stopped = self.stopped.clone();
        tokio::select! {
            end = ended.wait_for(Option::is_some) => Ok(end.unwrap().unwrap()),
            _ = stopped.wait_for(Option::is_some) => Err(unreachable("the connection broke")),
        }
    }

    async fn signal(
        &self,
        container_id: &str,
        target: SignalTarget<'_>,
        signal: Signal,
    ) -> Result<(), BackendError> {
        let all = if target == SignalTarget::Container { " all" } else { "" };
        self.step(&format!("agent.signal {}{all}", signal.0)).await?;
        let exec_id = if let SignalTarget::Exec(exec_id) = target { exec_id } else { "" };
        let stubborn = self.script.state().stubborn;
        if signal == Signal::KILL || !stubborn {
            self.process(container_id, exec_id)?.end(128 + i32::from(signal.0), false);
        }
        self.script.done("agent.signal").await
    }

    async fn stats(&self) -> Result<StatsResponse, BackendError> {
        self.step("agent.stats").await?;
        Ok(StatsResponse { memory_total: 100, memory_available: 60, ..StatsResponse::default() })
    }

    async fn usage(&self) -> Result<UsageResponse, BackendError> {
        self.step("agent.usage").await?;
        Ok(self.script.state().usage.clone())
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
        let said = self.said(container_id, "", kind, usize::try_from(offset).unwrap())?;
        let reader: Box<dyn AsyncRead + Send + Unpin> =
            if stdout { self.broken_off(said) } else { Box::new(said) };
        let key = if stdout { container_id.to_owned() } else { format!("{container_id} stderr") };
        let acknowledge = Box::new(FakeAcknowledge { script: self.script.clone(), key });
        Ok(Output { reader, acknowledge })
    }

    async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<Pieces, BackendError> {
        self.step("agent.exec_output").await?;
        self.said(container_id, exec_id, kind, 0).map(Pieces::held)
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

/// Keeps what is written to any input; a connection to a port says it back.
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

struct FakeAcknowledge {
    script: Arc<Script>,
    key: String,
}

#[async_trait]
impl Acknowledge for FakeAcknowledge {
    async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
        self.script.state().acknowledged.insert(self.key.clone(), total);
        Ok(())
    }
}
