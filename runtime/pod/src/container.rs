//! A container as its pod's driver holds it.

use std::sync::Arc;

use oci_spec::runtime::Process;
use runtime_logs::LogFile;
use runtime_spec::{Resolved, Signal};
use tokio::sync::watch;

use crate::acks::Acks;
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus};
use crate::roster::ContainerEntry;
use crate::{ContainerState, ContainerView};

/// Reason of a container whose program could not be started, as other runtimes spell it.
pub(crate) const START_ERROR: &str = "StartError";

/// Its exit code.
pub(crate) const START_ERROR_CODE: i32 = 128;

/// Exit code of a container that its machine's end took along: as if killed.
pub(crate) const LOST_CODE: i32 = 137;

/// Record, status, and what the daemon holds open for it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) record: Arc<ContainerRecord>,
    pub(crate) status: ContainerStatus,
    pub(crate) process: Arc<Process>,
    pub(crate) stop_signal: Signal,
    pub(crate) log: LogFile,
    pub(crate) acks: Arc<Acks>,
    /// Told once, when it has ended.
    pub(crate) ended: watch::Sender<bool>,
}

impl Container {
    pub(crate) fn new(
        record: Arc<ContainerRecord>,
        status: ContainerStatus,
        resolved: &Resolved,
        log: LogFile,
        acks: Acks,
    ) -> Self {
        let ended = watch::Sender::new(status.stage == ContainerStage::Exited);
        let process = Arc::new(resolved.spec.process().clone().unwrap_or_default());
        let stop_signal = resolved.stop_signal;
        Container { record, status, process, stop_signal, log, acks: Arc::new(acks), ended }
    }

    /// Marks its end.
    pub(crate) fn exit(&mut self, at_ns: i64, code: i32, reason: &str, message: impl Into<String>) {
        self.status.stage = ContainerStage::Exited;
        // Clocks of guest and host may differ a little; an end never comes before its start.
        self.status.finished_at_ns = at_ns.max(self.status.started_at_ns);
        self.status.exit_code = code;
        reason.clone_into(&mut self.status.reason);
        self.status.message = message.into();
    }

    /// What others see.
    pub(crate) fn entry(&self) -> ContainerEntry {
        ContainerEntry {
            view: Arc::new(self.view()),
            process: self.process.clone(),
            log: self.log.clone(),
            ended: self.ended.subscribe(),
        }
    }

    fn view(&self) -> ContainerView {
        let (record, status) = (&self.record, &self.status);
        ContainerView {
            id: record.id.clone(),
            pod_id: record.pod_id.clone(),
            spec: record.spec.clone(),
            image_id: record.image_id.clone(),
            state: match status.stage {
                ContainerStage::Creating | ContainerStage::Created | ContainerStage::Starting => {
                    ContainerState::Created
                }
                ContainerStage::Running => ContainerState::Running,
                ContainerStage::Exited => ContainerState::Exited,
                ContainerStage::Unknown => ContainerState::Unknown,
            },
            created_at_ns: record.created_at_ns,
            started_at_ns: status.started_at_ns,
            finished_at_ns: status.finished_at_ns,
            exit_code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            log_path: record.log_path.clone(),
            user: status.user.clone(),
            stop_signal: self.stop_signal.0,
        }
    }
}
