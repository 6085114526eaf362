//! Calls with questions to the node's plugins. Plugins are asked before the driver, and notified afterwards.
//! The driver waits for no plugin.
//!
//! If a driver would refuse a call anyway, it does so itself, and no plugin is notified.

use std::sync::Arc;

use runtime_spans::{span, step};
use runtime_spec::{ContainerPlan, ContainerSpec, Resources};

use super::ask::{ask, recovered};
use crate::clock;
use crate::command::{Command, NewContainerSpec};
use crate::container::GUEST_PATHS;
use crate::error::PodError;
use crate::node::Node;
use crate::plugins::Asking;
use crate::roster::PodEntry;
use crate::view::{ContainerState, ContainerView, PodState, PodView};

/// Makes a container as plugins want it, and returns its id.
pub(super) async fn create_container(
    node: Arc<Node>,
    entry: PodEntry,
    spec: ContainerSpec,
    asking: Box<dyn Asking>,
) -> Result<String, PodError> {
    let Some((pod, container)) = planned(&node, &entry.view.id, &spec)? else {
        let new = Box::new(NewContainerSpec { id: None, spec, asking: None });
        return ask(&entry, |reply| Command::CreateContainer(new, reply)).await;
    };
    let creating = async {
        let adjusting = asking.create_container(&pod, &container);
        let spec = step(span!("ask plugins"), adjusting).await?;
        let new = Box::new(NewContainerSpec { id: Some(container.id.clone()), spec, asking: None });
        ask(&entry, |reply| Command::CreateContainer(new, reply)).await
    };
    let created = creating.await;
    if created.is_err() {
        asking.create_undone(&pod, &container);
    }
    created
}

/// The pod, and the planned container; none if the pod's driver would refuse it.
fn planned(
    node: &Node,
    pod_id: &str,
    spec: &ContainerSpec,
) -> Result<Option<(Arc<PodView>, ContainerView)>, PodError> {
    let Some((pod, containers)) = node.roster.pod_with_containers(pod_id) else { return Ok(None) };
    let is_same =
        |known: &Arc<ContainerView>| (&known.spec.name, known.spec.attempt) == (&spec.name, spec.attempt);
    if pod.state != PodState::Ready || containers.iter().any(is_same) {
        return Ok(None);
    }
    let image = node.backends.find_image(&spec.image)?;
    let id = clock::new_id();
    let plan = ContainerPlan::resolve(&pod.spec, spec, &image.config, &id, &GUEST_PATHS)?;
    let container = ContainerView {
        id,
        pod_id: pod.id.clone(),
        spec: spec.clone(),
        image_tag: image.tag_of(&spec.user_specified_image),
        image_id: image.id,
        image_ref: image.reference,
        process: Arc::new(plan.oci.process().clone().unwrap_or_default()),
        resources: spec.resources.clone(),
        ..ContainerView::default()
    };
    Ok(Some((pod, container)))
}

/// Lets a created container's program run, if plugins allow it. Otherwise the container is `Exited`.
pub(super) async fn start_container(
    node: Arc<Node>,
    entry: PodEntry,
    container: Arc<ContainerView>,
) -> Result<(), PodError> {
    recovered(&entry).await?;
    let asking = node.plugins.begin();
    if let Some((pod, container)) = now(&node, &container.id)
        && (pod.state, container.state) == (PodState::Ready, ContainerState::Created)
    {
        let asked = step(span!("ask plugins"), asking.start_container(&pod, &container)).await;
        if let Err(refusal) = asked {
            return ask(&entry, |reply| Command::RefuseStart(container.id.clone(), refusal, reply)).await;
        }
    }
    ask(&entry, |reply| Command::StartContainer(container.id.clone(), reply)).await
}

/// Changes a container's limits as plugins want it.
pub(super) async fn update_container(
    node: Arc<Node>,
    entry: PodEntry,
    container: Arc<ContainerView>,
    update: Resources,
) -> Result<(), PodError> {
    recovered(&entry).await?;
    let asking = node.plugins.begin();
    let mut update = update;
    if let Some((pod, container)) = now(&node, &container.id)
        && pod.state == PodState::Ready
        && container.state != ContainerState::Exited
    {
        let changing = asking.update_container(&pod, &container, update);
        update = step(span!("ask plugins"), changing).await?;
    }
    let id = container.id.clone();
    ask(&entry, |reply| Command::UpdateContainer(id, Box::new(update), reply)).await?;
    if let Some((pod, container)) = now(&node, &container.id) {
        asking.container_updated(&pod, &container);
    }
    Ok(())
}

/// Changes the pod's resources, if plugins allow it.
pub(super) async fn update_pod(
    node: Arc<Node>,
    entry: PodEntry,
    update: Box<(Resources, Resources)>,
) -> Result<(), PodError> {
    recovered(&entry).await?;
    let asking = node.plugins.begin();
    let pod = |node: &Node| node.roster.pod(&entry.view.id).map(|entry| entry.view);
    if let Some(pod) = pod(&node).filter(|pod| pod.state == PodState::Ready) {
        step(span!("ask plugins"), asking.update_pod(&pod, &update.0, &update.1)).await?;
    }
    ask(&entry, |reply| Command::UpdatePod(update, reply)).await?;
    if let Some(pod) = pod(&node) {
        asking.pod_updated(&pod);
    }
    Ok(())
}

/// A container and its pod as they are now.
fn now(node: &Node, container_id: &str) -> Option<(Arc<PodView>, Arc<ContainerView>)> {
    let container = node.roster.container(container_id)?.view;
    let pod = node.roster.pod(&container.pod_id)?.view;
    Some((pod, container))
}
