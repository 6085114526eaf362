//! Plugins of the node, from the point of view of pods. They are asked before a pod or a container changes,
//! and notified afterwards. This crate knows them only by these traits.

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
    /// Whether there is any plugin. Without one, the other methods are not called.
    fn hears(&self) -> bool;

    /// Begins a change with questions to plugins. The returned value is kept until the change is published.
    /// So a plugin that registers meanwhile either finds it in the lists or is asked about it.
    fn begin(&self) -> Box<dyn Asking>;

    /// Notifies plugins of an event of a pod, or of a container of the pod. Runs under the lock of the lists,
    /// so events keep the order of the changes. It never waits, and reads no pod.
    fn notice(&self, kind: EventKind, pod: &PodView, container: Option<&ContainerView>);

    /// Notifies plugins of a pod's stop: its containers have ended, and its VM and network still exist.
    /// Returns within a bounded time.
    async fn pod_stops(&self, pod: &PodView);
}

/// A change that needs the plugins' consent.
#[async_trait]
pub trait Asking: Debug + Send + Sync {
    /// Whether there is no plugin to ask.
    fn is_alone(&self) -> bool;

    /// Asks whether a pod may run. It is not listed yet.
    async fn run_pod(&self, pod: &PodView) -> Result<(), PluginRefusal>;

    /// Asks how to create a container, not listed yet, and returns its spec.
    async fn create_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
    ) -> Result<ContainerSpec, PluginRefusal>;

    /// Notifies plugins of a container's failed creation.
    fn create_undone(&self, pod: &PodView, container: &ContainerView);

    /// Asks whether a container may be started.
    async fn start_container(&self, pod: &PodView, container: &ContainerView) -> Result<(), PluginRefusal>;

    /// Asks how to change a container's limits, and returns the change.
    async fn update_container(
        &self,
        pod: &PodView,
        container: &ContainerView,
        update: Resources,
    ) -> Result<Resources, PluginRefusal>;

    /// Notifies plugins of a container's changed limits.
    fn container_updated(&self, pod: &PodView, container: &ContainerView);

    /// Asks whether the pod's resources may be changed.
    async fn update_pod(
        &self,
        pod: &PodView,
        resources: &Resources,
        overhead: &Resources,
    ) -> Result<(), PluginRefusal>;

    /// Notifies plugins of the pod's changed resources.
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
