//! An operation in progress, with the plugins present at its beginning. They answer in the order of their
//! indexes.

use std::sync::Arc;

use proto_nri::nri::Event::{
    CREATE_CONTAINER, UPDATE_CONTAINER, UPDATE_POD_SANDBOX, VALIDATE_CONTAINER_ADJUSTMENT,
};
use proto_nri::nri::{
    ContainerAdjustment, ContainerUpdate, CreateContainerRequest, LinuxResources, PluginInstance,
    UpdateContainerRequest, UpdatePodSandboxRequest, ValidateContainerAdjustmentRequest,
};
use proto_nri::nri_ttrpc::PluginClient;

use super::Set;
use crate::deadline::Deadline;
use crate::error::NriError;
use crate::merge::{MergedCreation, MergedUpdates, Owners};
use crate::name::short;
use crate::occurrence::Occurrence;
use crate::plugin::Plugin;

/// An operation in progress. Its caller keeps it until the result is visible in
/// [`Runtime::known`](crate::Runtime::known), so that no plugin misses it.
#[derive(Debug)]
pub struct Flight {
    set: Arc<Set>,
    generation: u64,
    plugins: Arc<[Arc<Plugin>]>,
}

/// The plugins' requests on a container's creation.
#[derive(Clone, Debug, Default)]
pub struct Creation {
    /// Changes of the container. Those of later plugins come later.
    pub adjustment: ContainerAdjustment,
    /// Updates of other containers.
    pub updates: Vec<ContainerUpdate>,
}

/// The plugins' requests on a container's update.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// All resources for the update, if plugins changed any.
    pub resources: Option<LinuxResources>,
    /// Updates of other containers.
    pub updates: Vec<ContainerUpdate>,
}

impl Flight {
    pub(super) fn begin(set: &Arc<Set>) -> Flight {
        let mut state = set.state();
        let (generation, plugins) = (state.generation, state.plugins.clone());
        *state.flights.entry(generation).or_default() += 1;
        drop(state);
        Flight { set: set.clone(), generation, plugins }
    }

    /// Returns true without plugins. Then nothing has to be converted.
    pub fn is_alone(&self) -> bool {
        self.plugins.is_empty()
    }

    /// Sends an event to all plugins, and waits for their answers.
    ///
    /// # Errors
    /// A plugin refuses. Those after it did not get the event.
    pub async fn occurs(&self, occurrence: Occurrence) -> Result<(), NriError> {
        let (event, occurrence) = (occurrence.event, Arc::new(occurrence));
        for plugin in self.plugins.iter() {
            let occurrence = occurrence.clone();
            let rpc = move |client, deadline: Deadline| async move {
                occurrence.send(&client, || deadline.context()).await
            };
            plugin.call(event, rpc).await?;
        }
        Ok(())
    }

    /// Informs all plugins of a pod's future resources.
    ///
    /// # Errors
    /// A plugin refuses. Those after it did not get the event.
    pub async fn update_pod(&self, request: UpdatePodSandboxRequest) -> Result<(), NriError> {
        let request = Arc::new(request);
        for plugin in self.plugins.iter() {
            let request = request.clone();
            let rpc = move |client: PluginClient, deadline: Deadline| async move {
                client.update_pod_sandbox(deadline.context(), &request).await
            };
            plugin.call(UPDATE_POD_SANDBOX, rpc).await?;
        }
        Ok(())
    }

    /// Asks all plugins how to create a container.
    ///
    /// # Errors
    /// A plugin refuses, two ask for different things, or a validating plugin rejects the result.
    pub async fn create(&self, request: CreateContainerRequest) -> Result<Creation, NriError> {
        let mut merged = MergedCreation::new(request.clone());
        for plugin in self.plugins.iter() {
            let request = Arc::new(merged.request.clone());
            let rpc = move |client: PluginClient, deadline: Deadline| async move {
                client.create_container(deadline.context(), &request).await
            };
            if let Some(response) = plugin.call(CREATE_CONTAINER, rpc).await? {
                merged.add(&plugin.name, response)?;
            }
        }
        self.validate(request, &merged).await?;
        let (updates, _) = merged.updates.into_parts();
        Ok(Creation { adjustment: merged.adjustment, updates })
    }

    async fn validate(
        &self,
        pristine: CreateContainerRequest,
        merged: &MergedCreation,
    ) -> Result<(), NriError> {
        let validates = |plugin: &&Arc<Plugin>| plugin.wants(VALIDATE_CONTAINER_ADJUSTMENT);
        if !self.plugins.iter().any(|plugin| validates(&plugin)) {
            return Ok(());
        }
        let instance = |plugin: &Arc<Plugin>| PluginInstance {
            name: plugin.name.name().to_owned(),
            index: plugin.name.index().to_owned(),
            ..Default::default()
        };
        let request = Arc::new(ValidateContainerAdjustmentRequest {
            pod: pristine.pod,
            container: pristine.container,
            adjust: Some(merged.adjustment.clone()).into(),
            update: merged.updates.others().to_vec(),
            owners: Some(merged.owners.message()).into(),
            plugins: self.plugins.iter().map(instance).collect(),
            ..Default::default()
        });
        for plugin in self.plugins.iter().filter(validates) {
            let request = request.clone();
            let rpc = move |client: PluginClient, deadline: Deadline| async move {
                client.validate_container_adjustment(deadline.context(), &request).await
            };
            let plugin_name = plugin.name.clone();
            match plugin.call(VALIDATE_CONTAINER_ADJUSTMENT, rpc).await? {
                Some(response) if response.reject => {
                    let reason = match short(&response.reason) {
                        reason if reason.is_empty() => "it gives no reason".to_owned(),
                        reason => reason,
                    };
                    return Err(NriError::Rejected { plugin: plugin_name, reason });
                }
                Some(_) => {}
                None => return Err(NriError::NotValidated { plugin: plugin_name }),
            }
        }
        Ok(())
    }

    /// Asks all plugins how to update a container.
    ///
    /// # Errors
    /// A plugin refuses, or two ask for different things.
    pub async fn update(&self, request: UpdateContainerRequest) -> Result<Update, NriError> {
        let id = request.container.id.clone();
        let asked = request.linux_resources.clone().unwrap_or_default();
        let (mut owners, mut merged) = (Owners::default(), MergedUpdates::beside_update(&id, asked));
        for plugin in self.plugins.iter() {
            let mut request = request.clone();
            request.linux_resources = merged.asked().cloned().into();
            let rpc = move |client: PluginClient, deadline: Deadline| async move {
                client.update_container(deadline.context(), &request).await
            };
            if let Some(response) = plugin.call(UPDATE_CONTAINER, rpc).await? {
                merged.add(&mut owners, &plugin.name, response.update)?;
            }
        }
        let (updates, resources) = merged.into_parts();
        Ok(Update { resources, updates })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.set.state();
        if let Some(count) = state.flights.get_mut(&self.generation) {
            *count -= 1;
            if *count == 0 {
                state.flights.remove(&self.generation);
            }
        }
        drop(state);
        self.set.landed.notify_waiters();
    }
}
