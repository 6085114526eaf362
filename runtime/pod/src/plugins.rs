//! Plugins of the node, as pods need them: they are asked before something is done to a pod or a container, and hear of it afterwards.
//! The crate knows them by these traits alone.

use std::fmt::Debug;

use async_trait::async_trait;
use runtime_spec::{ContainerSpec, Resources};

use crate::roster::events::EventKind;
use crate::view::{ContainerView, PodView};

/// Why plugins keep something from being done, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginRefusal(pub String);

/// The plugins of the node.
#[async_trait]
pub trait Plugins: Debug + Send + Sync {
    /// Whether there is any. Where there is none, nobody asks for anything else.
    fn hears(&self) -> bool;

    /// Begins something that plugins are asked about. What it returns is kept until what was done is published, so that a plugin which
    /// comes meanwhile finds it in the lists or is asked about it.
    fn begin(&self) -> Box<dyn Asking>;

    /// Lets plugins hear of an event of a pod, or of a container of the pod. Runs under the lock of the lists, so that events come in the
    /// order of the changes: it waits for nobody, and looks at no pod.
    fn notice(&self, kind: EventKind, pod: &PodView, container: Option<&ContainerView>);

    /// Lets plugins hear that a pod stops: its containers have ended, and its VM and network are there. Returns within a bounded time.
    async fn pod_stops(&self, pod: &PodView);
}

/// Something that plugins are asked about.
#[async_trait]
pub trait Asking: Debug + Send + Sync {
    /// Whether there is nobody to be asked.
    fn is_alone(&self) -> bool;

    /// Asks whether a pod may run. It is not listed yet.
    async fn run_pod(&self, pod: &PodView) -> Result<(), PluginRefusal>;

    /// Asks how a container is to be made, which is not listed yet, and returns its spec.
    async fn create_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
    ) -> Result<ContainerSpec, PluginRefusal>;

    /// Lets plugins hear that a container could not be made.
    fn create_undone(&self, pod: &PodView, container: &ContainerView);

    /// Asks whether a container may be started.
    async fn start_container(&self, pod: &PodView, container: &ContainerView) -> Result<(), PluginRefusal>;

    /// Asks how a container's limits are to be changed, and returns the change.
    async fn update_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
        update: Resources,
    ) -> Result<Resources, PluginRefusal>;

    /// Lets plugins hear that a container's limits were changed.
    fn container_updated(&self, pod: &PodView, container: &ContainerView);

    /// Asks whether what the pod may use may be changed.
    async fn update_pod(
        &self,
        pod: &PodView,
        resources: &Resources,
        overhead: &Resources,
    ) -> Result<(), PluginRefusal>;

    /// Lets plugins hear that what the pod may use was changed.
    fn pod_updated(&self, pod: &PodView);
}

/// A node without plugins.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlugins;

#[async_trait]
impl Plugins for NoPlugins {
    fn hears(&self) -> bool {
        false
    }

    fn begin(&self) -> Box<dyn Asking> {
        Box::new(NoPlugins)
    }

    fn notice(&self, _: EventKind, _: &PodView, _: Option<&ContainerView>) {}

    async fn pod_stops(&self, _: &PodView) {}
}

#[async_trait]
impl Asking for NoPlugins {
    fn is_alone(&self) -> bool {
        true
    }

    async fn run_pod(&self, _: &PodView) -> Result<(), PluginRefusal> {
        Ok(())
    }

    async fn create_container(
        &self,
        _: &PodView,
        container: &ContainerView,
    ) -> Result<ContainerSpec, PluginRefusal> {
        Ok(container.spec.clone())
    }

    fn create_undone(&self, _: &PodView, _: &ContainerView) {}

    async fn start_container(&self, _: &PodView, _: &ContainerView) -> Result<(), PluginRefusal> {
        Ok(())
    }

    async fn update_container(
        &self,
        _: &PodView,
        _: &ContainerView,
        update: Resources,
    ) -> Result<Resources, PluginRefusal> {
        Ok(update)
    }

    fn container_updated(&self, _: &PodView, _: &ContainerView) {}

    async fn update_pod(&self, _: &PodView, _: &Resources, _: &Resources) -> Result<(), PluginRefusal> {
        Ok(())
    }

    fn pod_updated(&self, _: &PodView) {}
}
