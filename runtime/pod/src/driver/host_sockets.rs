//! Sockets of the node: which ones a container reaches, by the list of its pod's handler when the container
//! is created, and their record. A container keeps its sockets for life. A pod's connections end with the
//! daemon, and new ones work once the pod is recovered.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use proto_agent::HOST_SOCKETS_MAX;
use runtime_spec::{ContainerPlan, ContainerSpec, SocketToken};

use super::Driver;
use crate::backend::ConnectorSpec;
use crate::blocking::{blocking, within};
use crate::container::GUEST_PATHS;
use crate::error::{PodError, PodErrorKind};
use crate::host::connector_cgroup;
use crate::record::{ContainerRecord, ContainerStage, GuestVolume, HostSocket, PodStage};
use crate::sockets::find::FoundSocket;
use crate::sockets::server::{OfferedSocket, SocketServer};
use crate::sockets::user_of;

/// How long finding sockets may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// Finds the handler's listed sockets behind the container's mounts, and adds them to the plan. Mounts of
    /// volumes kept by the guest have none.
    pub(super) async fn place_sockets(
        &self,
        spec: &ContainerSpec,
        kept: &[GuestVolume],
        plan: &mut ContainerPlan,
    ) -> Result<Vec<HostSocket>, PodError> {
        let rules = self.node.start.now();
        let handler = rules.find(self.record.handler());
        // A pod may outlive its handler. It has no sockets then.
        let allowed = handler.map(|handler| handler.host_sockets.clone()).unwrap_or_default();
        let is_kept = |number: usize| kept.iter().any(|volume| volume.number == number);
        let mounts = spec.host_mounts().filter(|(number, _)| !is_kept(*number));
        let mounts: Vec<_> =
            mounts.map(|(number, mount)| (number, PathBuf::from(&mount.host_path))).collect();
        if allowed.is_empty() || mounts.is_empty() {
            return Ok(Vec::new());
        }
        const DOING: &str = "mounts: looking for sockets";
        let finding = async {
            let found = self.node.backends.sockets.find(allowed, mounts).await;
            found.map_err(|error| error.during(DOING))
        };
        let found = within(LOOKED_WITHIN, DOING, finding).await?;
        if !self.may_reach(&found)? {
            return Ok(Vec::new());
        }
        let on_record = |FoundSocket { mount, sub_path, path }| {
            let token = SocketToken(rand::random());
            HostSocket { number: mount, sub_path, path, token }
        };
        let sockets: Vec<HostSocket> = found.into_iter().map(on_record).collect();
        let planned = sockets.iter().map(|socket| (socket.number, socket.sub_path.clone(), socket.token));
        plan.lead_to_sockets(spec, planned, &GUEST_PATHS);
        Ok(sockets)
    }

    /// Whether the pod's programs may reach the sockets. If not, a socket mount is refused, and a directory
    /// is mounted without its sockets.
    fn may_reach(&self, found: &[FoundSocket]) -> Result<bool, PodError> {
        if found.len() > HOST_SOCKETS_MAX {
            let text = format!(
                "mounts: the handler's host_sockets are {} times in the container's mounts, and a container has {HOST_SOCKETS_MAX} at most",
                found.len()
            );
            return Err(PodError::new(PodErrorKind::InvalidArgument, text));
        }
        if self.status.host_sockets || found.is_empty() {
            return Ok(self.status.host_sockets);
        }
        const WHY: &str = "the pod was started before its handler had host_sockets, or from an older installation; recreate the pod";
        match found.iter().find(|socket| socket.sub_path.is_none()) {
            Some(socket) => {
                let text = format!("mounts: host path {}: {WHY}", socket.path.display());
                Err(PodError::new(PodErrorKind::FailedPrecondition, text))
            }
            None => {
                tracing::info!(
                    pod = self.record.id,
                    "sockets of the node are not offered in directories: {WHY}"
                );
                Ok(false)
            }
        }
    }

    /// Serves the streams of the pod's programs, if they may open any.
    pub(super) fn serve_sockets(&mut self) {
        if let Some(live) = self.live.clone().filter(|_| self.status.host_sockets) {
            self.sockets = Some(SocketServer::start(self.node.clone(), live, self.record.id.clone()));
        }
    }

    /// Offers the sockets of a new or recovered container.
    pub(super) fn offer_sockets(&mut self, record: &ContainerRecord) {
        let Some(server) = &mut self.sockets else { return };
        let spec = ConnectorSpec {
            container_id: record.id.clone(),
            pod_id: record.pod_id.clone(),
            cgroup_parent: self.record.spec.cgroup_parent.clone(),
            user: user_of(&self.record.spec.namespaces, &record.spec),
        };
        let offered = |socket: &HostSocket| OfferedSocket {
            token: socket.token,
            path: socket.path.clone(),
            in_directory: socket.sub_path.is_some(),
        };
        server.add(spec, record.host_sockets.iter().map(offered).collect());
    }

    /// Ends a container's connections to sockets. The call is idempotent.
    pub(super) fn withdraw_sockets(&mut self, container_id: &str) {
        if let Some(server) = &mut self.sockets {
            server.remove(container_id);
        }
    }

    /// Continues with the sockets of a recovered pod: ends connectors left by an earlier daemon, and offers
    /// the containers' sockets again.
    pub(super) async fn recover_sockets(&mut self) {
        if !self.status.host_sockets {
            return;
        }
        self.end_connectors().await;
        if self.status.stage != PodStage::Ready {
            return;
        }
        self.serve_sockets();
        let open: HashSet<String> =
            self.containers.ids_in(|stage| stage != ContainerStage::Exited).into_iter().collect();
        for id in open {
            if let Some(record) = self.containers.get(&id).map(|container| container.record.clone()) {
                self.offer_sockets(&record);
            }
        }
    }

    /// Ends the connectors of this daemon, and starts no new ones. Their leftovers go with the pod's files.
    pub(super) async fn stop_sockets(&mut self) {
        if let Some(server) = self.sockets.take() {
            server.end().await;
        }
    }

    /// Ends all connectors of the pod, including those unknown to this daemon.
    pub(super) async fn end_connectors(&mut self) {
        self.stop_sockets().await;
        let (root, record) = (self.node.places.cgroup_root.clone(), self.record.clone());
        let ending = move || connector_cgroup::remove(&root, &record.spec.cgroup_parent, &record.id, None);
        if let Err(error) = blocking(&self.node.pools.kernel, "ending connectors", ending).await {
            let (pod, error) = (&self.record.id, error.chain());
            tracing::warn!(pod, error, "cgroups of connectors stay until the pod is stopped");
        }
    }
}
