//! Pods' questions to plugins.

use async_trait::async_trait;
use proto_nri::nri::Event::{
    POST_UPDATE_CONTAINER, POST_UPDATE_POD_SANDBOX, REMOVE_CONTAINER, REMOVE_POD_SANDBOX, RUN_POD_SANDBOX,
    START_CONTAINER, STOP_POD_SANDBOX,
};
use proto_nri::nri::{CreateContainerRequest, UpdateContainerRequest, UpdatePodSandboxRequest};
use runtime_nri::{NriError, Occurrence, Runtime};
use runtime_pod::{Asking, ContainerView, PluginRefusal, PodView};
use runtime_spec::{ContainerSpec, Resources};

use super::adjust::adjusted;
use super::out::{container_out, pod_out};
use super::plugins::NriPlugins;
use super::resources::{resources_in, resources_out};
use crate::error::chain;

/// An operation in progress, with questions to plugins.
#[derive(Debug)]
pub(super) struct Flight {
    flight: runtime_nri::Flight,
    nri: NriPlugins,
}

impl Flight {
    pub(super) fn new(nri: &NriPlugins) -> Flight {
        Flight { flight: nri.plugins.begin(), nri: nri.clone() }
    }

    /// Updates other containers. Failures do not stop the operation in progress.
    async fn update_others(&self, updates: Vec<proto_nri::nri::ContainerUpdate>) {
        if updates.is_empty() {
            return;
        }
        let failed = self.nri.update(updates).await;
        if !failed.is_empty() {
            let ids: Vec<_> = failed.iter().map(|update| update.container_id.as_str()).collect();
            tracing::warn!(containers = ids.join(", "), "updates requested by NRI plugins failed");
        }
    }
}

fn refusal(error: &NriError) -> PluginRefusal {
    PluginRefusal(error.to_string())
}

#[async_trait]
impl Asking for Flight {
    fn is_alone(&self) -> bool {
        self.flight.is_alone()
    }

    async fn run_pod(&self, pod: &PodView) -> Result<(), PluginRefusal> {
        if self.flight.is_alone() {
            return Ok(());
        }
        let ran = self.flight.occurs(Occurrence::of_pod(RUN_POD_SANDBOX, pod_out(pod))).await;
        if ran.is_err() {
            for event in [STOP_POD_SANDBOX, REMOVE_POD_SANDBOX] {
                self.nri.plugins.notice(Occurrence::of_pod(event, pod_out(pod)));
            }
        }
        ran.map_err(|error| refusal(&error))
    }

    async fn create_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
    ) -> Result<ContainerSpec, PluginRefusal> {
        if self.flight.is_alone() {
            return Ok(container.spec.clone());
        }
        let (pod, out) = (Some(pod_out(pod)).into(), Some(container_out(container)).into());
        let request = CreateContainerRequest { pod, container: out, ..Default::default() };
        let creation = self.flight.create(request).await.map_err(|error| refusal(&error))?;
        self.update_others(creation.updates).await;
        let adjusted = adjusted(&container.spec, creation.adjustment, &self.nri).await;
        adjusted.map_err(|failure| {
            PluginRefusal(format!("NRI adjustment of container {}: {}", container.spec.name, chain(&failure)))
        })
    }

    fn create_undone(&self, pod: &PodView, container: &ContainerView) {
        let (pod, container) = (pod_out(pod), container_out(container));
        self.nri.plugins.container_stopped(pod.clone(), container.clone());
        self.nri.plugins.notice(Occurrence::of_container(REMOVE_CONTAINER, pod, container));
    }

    async fn start_container(&self, pod: &PodView, container: &ContainerView) -> Result<(), PluginRefusal> {
        if self.flight.is_alone() {
            return Ok(());
        }
        let starts = Occurrence::of_container(START_CONTAINER, pod_out(pod), container_out(container));
        self.flight.occurs(starts).await.map_err(|error| refusal(&error))
    }

    async fn update_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
        update: Resources,
    ) -> Result<Resources, PluginRefusal> {
        if self.flight.is_alone() {
            return Ok(update);
        }
        let request = UpdateContainerRequest {
            pod: Some(pod_out(pod)).into(),
            container: Some(container_out(container)).into(),
            linux_resources: Some(resources_out(&update)).into(),
            ..Default::default()
        };
        let wanted = self.flight.update(request).await.map_err(|error| refusal(&error))?;
        self.update_others(wanted.updates).await;
        let Some(resources) = wanted.resources else { return Ok(update) };
        let (resources, unsupported) = resources_in(&resources);
        self.nri.unsupported.judge(&container.spec.name, unsupported).map_err(PluginRefusal)?;
        Ok(update.merged(&resources))
    }

    fn container_updated(&self, pod: &PodView, container: &ContainerView) {
        let (pod, container) = (pod_out(pod), container_out(container));
        self.nri.plugins.notice(Occurrence::of_container(POST_UPDATE_CONTAINER, pod, container));
    }

    async fn update_pod(
        &self,
        pod: &PodView,
        resources: &Resources,
        overhead: &Resources,
    ) -> Result<(), PluginRefusal> {
        if self.flight.is_alone() {
            return Ok(());
        }
        let request = UpdatePodSandboxRequest {
            pod: Some(pod_out(pod)).into(),
            overhead_linux_resources: Some(resources_out(overhead)).into(),
            linux_resources: Some(resources_out(resources)).into(),
            ..Default::default()
        };
        self.flight.update_pod(request).await.map_err(|error| refusal(&error))
    }

    fn pod_updated(&self, pod: &PodView) {
        self.nri.plugins.notice(Occurrence::of_pod(POST_UPDATE_POD_SANDBOX, pod_out(pod)));
    }
}
