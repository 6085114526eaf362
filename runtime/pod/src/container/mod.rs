//! A container as its pod's driver holds it.

pub(crate) mod admission;
pub(crate) mod attach;
pub(crate) mod containers;
pub(crate) mod filters;
pub(crate) mod kill;
pub(crate) mod log;
pub(crate) mod mounts;
pub(crate) mod seccomp_file;
pub(crate) mod stop;
pub(crate) mod stop_signal;
pub(crate) mod watcher;
pub(crate) mod written;

use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::runtime::Process;
use runtime_spec::{ContainerPlan, ExitReason, GuestPaths, PodSpec, Resources, Signal};
use tokio::sync::watch;

use crate::clock;
use crate::container::stop_signal::StopSignal;
use crate::io::output::ContainerOutput;
use crate::node::Node;
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus};
use crate::roster::ContainerEntry;
use crate::view::{ContainerState, ContainerView};

/// The agent's paths, for OCI specs.
pub(crate) const GUEST_PATHS: GuestPaths = GuestPaths {
    resolv_conf: proto_agent::guest_path::RESOLV_CONF,
    hosts: proto_agent::guest_path::HOSTS,
    hostname: proto_agent::guest_path::HOSTNAME,
    shm: proto_agent::guest_path::SHM,
    pid_namespace: proto_agent::guest_path::POD_PID_NAMESPACE,
    cgroup_parent: proto_agent::guest_path::CGROUP_PARENT,
    shared: proto_agent::guest_path::SHARED,
    image_volumes: proto_agent::guest_path::IMAGE_VOLUMES,
    guest_volumes: proto_agent::guest_path::GUEST_VOLUMES,
    host_sockets: proto_agent::guest_path::HOST_SOCKETS,
    declared_volumes: proto_agent::guest_path::DECLARED_VOLUMES,
};

/// Exit code of a container ended by its VM's end: as if killed.
pub(crate) const LOST_CODE: i32 = 137;

/// Record, status, and the daemon's open handles for the container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) record: Arc<ContainerRecord>,
    pub(crate) status: ContainerStatus,
    pub(crate) process: Arc<Process>,
    pub(crate) stop_signal: Signal,
    /// Whether the container has had its stop signal.
    pub(crate) asked: StopSignal,
    /// The log's path, even if there is no log.
    pub(crate) log_path: PathBuf,
    pub(crate) output: ContainerOutput,
    /// Set once, when the container has ended.
    pub(crate) ended: watch::Sender<bool>,
    /// Set once the guest has reported the end. The end is published later, when the log has the output.
    pub(crate) reported: watch::Sender<bool>,
}

impl Container {
    pub(crate) fn new(
        record: Arc<ContainerRecord>,
        status: ContainerStatus,
        plan: &ContainerPlan,
        output: ContainerOutput,
        log_path: PathBuf,
    ) -> Self {
        let ended = watch::Sender::new(status.stage == ContainerStage::Exited);
        let process = Arc::new(plan.oci.process().clone().unwrap_or_default());
        let stop_signal = plan.stop_signal;
        let asked = StopSignal::new(status.stop_signal_sent);
        let reported = watch::Sender::new(false);
        Container { record, status, process, stop_signal, asked, log_path, output, ended, reported }
    }

    /// A container created by an earlier daemon. Nothing is opened yet. If its plan cannot be resolved any
    /// more, its state is unknown.
    pub(crate) fn found(
        node: &Node,
        pod: &PodSpec,
        record: Arc<ContainerRecord>,
        status: ContainerStatus,
    ) -> Self {
        let output = log::found(node, &record, status.stage != ContainerStage::Exited);
        let log_path = log::shown_path(&node.places, &record);
        match ContainerPlan::resolve(pod, &record.spec, &record.image, &record.id, &GUEST_PATHS) {
            Ok(plan) => Container::new(record, status, &plan, output, log_path),
            Err(error) => {
                let ended = watch::Sender::new(status.stage == ContainerStage::Exited);
                let (process, stop_signal) = (Arc::default(), Signal::KILL);
                let asked = StopSignal::new(status.stop_signal_sent);
                let reported = watch::Sender::new(false);
                let mut container = Container {
                    record,
                    status,
                    process,
                    stop_signal,
                    asked,
                    log_path,
                    output,
                    ended,
                    reported,
                };
                container.doubt(&format!("its record cannot be used: {error}"));
                container
            }
        }
    }

    /// Marks the container's state as unknown, with the reason, unless it has exited.
    pub(crate) fn doubt(&mut self, why: &str) {
        if self.status.stage != ContainerStage::Exited {
            self.status.stage = ContainerStage::Unknown;
            why.clone_into(&mut self.status.message);
        }
    }

    /// Marks the container's end.
    pub(crate) fn exit(&mut self, at_ns: i64, code: i32, reason: ExitReason, message: impl Into<String>) {
        self.status.stage = ContainerStage::Exited;
        let begun = self.record.created_at_ns.max(self.status.started_at_ns);
        self.status.finished_at_ns = ended_at(begun, at_ns, clock::now_ns());
        self.status.exit_code = code;
        self.status.reason = Some(reason);
        self.status.message = message.into();
    }

    /// The container's limits as they are now.
    pub(crate) fn resources(&self) -> &Resources {
        self.status.resources.as_ref().unwrap_or(&self.record.spec.resources)
    }

    /// The published entry.
    pub(crate) fn entry(&self) -> ContainerEntry {
        ContainerEntry {
            view: Arc::new(self.view()),
            process: self.process.clone(),
            output: self.output.clone(),
            asked: self.asked.clone(),
            ended: self.ended.subscribe(),
            reported: self.reported.subscribe(),
        }
    }

    fn view(&self) -> ContainerView {
        let (record, status) = (&self.record, &self.status);
        ContainerView {
            id: record.id.clone(),
            pod_id: record.pod_id.clone(),
            spec: record.spec.clone(),
            image_id: record.image_id.clone(),
            image_tag: record.image_tag.clone(),
            image_ref: match record.image_ref.as_str() {
                "" => record.image_id.clone(),
                reference => reference.to_owned(),
            },
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
            reason: status.reason,
            message: status.message.clone(),
            log_path: self.log_path.clone(),
            user: status.user.clone(),
            stop_signal: self.stop_signal.0,
            volume_images: record
                .image_volumes
                .iter()
                .map(|volume| (volume.number, volume.image_id.clone()))
                .collect(),
            resources: self.resources().clone(),
            process: self.process.clone(),
        }
    }
}

/// The time of a container's end. The guest's time is limited by the host's own knowledge: clocks of guest
/// and host may differ, and a guest may lie. If the host's clock was set back since the start, its time now
/// counts: a kubelet waits for an end in the future before it starts the container again.
fn ended_at(begun_ns: i64, reported_ns: i64, now_ns: i64) -> i64 {
    if now_ns < begun_ns { now_ns } else { reported_ns.clamp(begun_ns, now_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_comes_never_after_now_and_before_its_start_only_if_that_does() {
        assert_eq!(ended_at(100, 150, 200), 150);
        assert_eq!(ended_at(100, 50, 200), 100, "the guest's clock is behind");
        assert_eq!(ended_at(100, 900, 200), 200, "the guest's clock is ahead");
        assert_eq!(ended_at(100, 900, 50), 50, "the host's clock was set back");
        assert_eq!(ended_at(100, 40, 50), 50, "so was the guest's");
    }
}
