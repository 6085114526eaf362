//! Updates of existing containers.

use proto_nri::nri::{ContainerUpdate, LinuxResources};

use super::owners::Owners;
use super::resources;
use crate::error::NriError;
use crate::name::PluginName;
use crate::serve::UPDATES_MAX;

/// The updates requested by plugins during one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergedUpdates {
    /// The container created by the event. It cannot be updated yet.
    created: Option<String>,
    /// The container updated by the event, with its resources after the update.
    updated: Option<(String, LinuxResources)>,
    is_updated_by_plugins: bool,
    others: Vec<ContainerUpdate>,
}

impl MergedUpdates {
    /// Updates of other containers during a container's creation.
    pub(crate) fn beside_creation(container: &str) -> MergedUpdates {
        MergedUpdates { created: Some(container.to_owned()), ..Default::default() }
    }

    /// Updates of other containers during the update of a container to the resources `asked`.
    pub(crate) fn beside_update(container: &str, asked: LinuxResources) -> MergedUpdates {
        MergedUpdates { updated: Some((container.to_owned(), asked)), ..Default::default() }
    }

    /// Adds the updates of a plugin's answer.
    pub(crate) fn add(
        &mut self,
        owners: &mut Owners,
        plugin: &PluginName,
        updates: Vec<ContainerUpdate>,
    ) -> Result<(), NriError> {
        let invalid = |reason: String| Err(NriError::Invalid { plugin: plugin.clone(), reason });
        if self.others.len() + updates.len() > UPDATES_MAX {
            return invalid(format!("there are more than {UPDATES_MAX} updates"));
        }
        for update in updates {
            if self.created.as_ref() == Some(&update.container_id) {
                return invalid("it updates the container being created".to_owned());
            }
            let before = owners.clone();
            match self.add_one(owners, plugin, &update) {
                Err(_) if update.ignore_failure => *owners = before,
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        owners: &mut Owners,
        plugin: &PluginName,
        update: &ContainerUpdate,
    ) -> Result<(), NriError> {
        let id = &update.container_id;
        let Some(asked) = update.linux.resources.as_ref() else { return Ok(()) };
        resources::claim(owners, id, plugin, asked)?;
        match &mut self.updated {
            Some((updated, known)) if updated == id => {
                self.is_updated_by_plugins = true;
                resources::overlay(known, asked);
            }
            _ => {
                let number = self.others.iter().position(|known| known.container_id == *id);
                let number = number.unwrap_or_else(|| {
                    let fresh = ContainerUpdate {
                        container_id: id.clone(),
                        ignore_failure: update.ignore_failure,
                        ..Default::default()
                    };
                    self.others.push(fresh);
                    self.others.len() - 1
                });
                let merged = &mut self.others[number];
                merged.ignore_failure &= update.ignore_failure;
                let known = merged.linux.mut_or_insert_default().resources.mut_or_insert_default();
                resources::overlay(known, asked);
            }
        }
        Ok(())
    }

    /// Resources of the updated container, as the next plugin sees them.
    pub(crate) fn asked(&self) -> Option<&LinuxResources> {
        self.updated.as_ref().map(|(_, resources)| resources)
    }

    /// The updates of other containers so far.
    pub(crate) fn others(&self) -> &[ContainerUpdate] {
        &self.others
    }

    /// The updates of other containers, and the updated container's resources if plugins changed them.
    pub(crate) fn into_parts(self) -> (Vec<ContainerUpdate>, Option<LinuxResources>) {
        let updated = self.updated.filter(|_| self.is_updated_by_plugins).map(|(_, resources)| resources);
        (self.others, updated)
    }
}

#[cfg(test)]
mod tests {
    use proto_nri::nri::{LinuxContainerUpdate, LinuxPids, OptionalInt64};

    use super::*;

    fn plugin(file: &str) -> PluginName {
        PluginName::of_file(file).unwrap()
    }

    fn memory(limit: i64) -> LinuxResources {
        let mut resources = LinuxResources::new();
        let limit = OptionalInt64 { value: limit, ..Default::default() };
        resources.memory.mut_or_insert_default().limit = Some(limit).into();
        resources
    }

    fn pids(limit: i64) -> LinuxResources {
        let pids = LinuxPids { limit, ..Default::default() };
        LinuxResources { pids: Some(pids).into(), ..Default::default() }
    }

    fn update(id: &str, resources: LinuxResources) -> ContainerUpdate {
        let linux = LinuxContainerUpdate { resources: Some(resources).into(), ..Default::default() };
        ContainerUpdate { container_id: id.into(), linux: Some(linux).into(), ..Default::default() }
    }

    #[test]
    fn updates_of_one_container_add_up_and_two_of_one_field_are_a_conflict() {
        let (mut owners, mut merged) = (Owners::default(), MergedUpdates::beside_creation("new"));
        merged.add(&mut owners, &plugin("01-a"), vec![update("x", memory(1)), update("y", pids(2))]).unwrap();
        merged.add(&mut owners, &plugin("02-b"), vec![update("x", pids(3))]).unwrap();
        let conflict = merged.add(&mut owners, &plugin("03-c"), vec![update("x", memory(9))]).unwrap_err();
        assert!(matches!(conflict, NriError::Conflict { .. }), "{conflict}");
        let ignored = ContainerUpdate { ignore_failure: true, ..update("x", memory(9)) };
        merged.add(&mut owners, &plugin("03-c"), vec![ignored]).unwrap();
        let (others, _) = merged.into_parts();
        assert_eq!(others.len(), 2);
        assert_eq!(others[0].linux.resources.memory.limit.value, 1);
        assert_eq!(others[0].linux.resources.pids.limit, 3);
    }

    #[test]
    fn the_container_that_is_created_cannot_be_updated() {
        let (mut owners, mut merged) = (Owners::default(), MergedUpdates::beside_creation("new"));
        let error = merged.add(&mut owners, &plugin("01-a"), vec![update("new", pids(2))]).unwrap_err();
        assert!(error.to_string().contains("being created"), "{error}");
    }

    #[test]
    fn an_update_is_what_was_asked_for_with_the_changes_of_plugins() {
        let (mut owners, mut merged) = (Owners::default(), MergedUpdates::beside_update("c", memory(5)));
        assert_eq!(merged.clone().into_parts().1, None);
        merged.add(&mut owners, &plugin("01-a"), vec![update("c", pids(7))]).unwrap();
        assert_eq!(merged.asked().unwrap().pids.limit, 7);
        let (others, resources) = merged.into_parts();
        let resources = resources.unwrap();
        assert!(others.is_empty());
        assert_eq!((resources.memory.limit.value, resources.pids.limit), (5, 7));
    }

    #[test]
    fn there_are_only_so_many_updates() {
        let (mut owners, mut merged) = (Owners::default(), MergedUpdates::default());
        let many = (0..=UPDATES_MAX).map(|number| update(&number.to_string(), pids(1))).collect();
        assert!(merged.add(&mut owners, &plugin("01-a"), many).is_err());
    }
}
