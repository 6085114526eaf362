//! A pod's containers as its driver holds them.
//!
//! [`Containers`] keeps the invariants: a container is found by the id on its record, names are unique, and a
//! container ends once. Committing and publishing are the driver's.

use std::collections::BTreeMap;

use runtime_spec::{ExitReason, Resources};

use super::Container;
use super::admission::{self, Known};
use crate::counters;
use crate::error::{PodError, PodErrorKind};
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus, PodStage};

/// All containers of one pod, by id.
#[derive(Debug, Default)]
pub(crate) struct Containers(BTreeMap<String, Container>);

impl Containers {
    /// Checks whether a container of this name may be created in a pod in this stage.
    pub(crate) fn admit(
        &self,
        pod_id: &str,
        stage: PodStage,
        name: &str,
        attempt: u32,
    ) -> Result<(), PodError> {
        let known = self.0.values().map(|container| Known {
            id: &container.record.id,
            name: &container.record.spec.name,
            attempt: container.record.spec.attempt,
        });
        admission::create(pod_id, stage, name, attempt, known)
    }

    pub(crate) fn insert(&mut self, container: Container) {
        self.0.insert(container.record.id.clone(), container);
    }

    /// Removes the container, and wakes all waiting for its end.
    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(container) = self.0.remove(id) {
            container.ended.send_replace(true);
        }
    }

    /// The container with this id, if the pod has it.
    pub(crate) fn get(&self, id: &str) -> Option<&Container> {
        self.0.get(id)
    }

    /// The container with the id from the caller's request.
    pub(crate) fn find(&self, id: &str) -> Result<&Container, PodError> {
        let found = self.0.get(id);
        found.ok_or_else(|| PodError::new(PodErrorKind::NotFound, format!("no container {id}")))
    }

    /// Stores a new status. An exited container keeps its own.
    pub(crate) fn set_status(&mut self, id: &str, status: ContainerStatus) {
        if let Some(container) = self.open(id) {
            container.status = status;
        }
    }

    /// Stores new limits; `None` for those of the spec. An exited container keeps its own.
    pub(crate) fn set_limits(&mut self, id: &str, limits: Option<Resources>) {
        if let Some(container) = self.open(id) {
            container.status.resources = limits;
        }
    }

    /// Notes that the container has had its stop signal; false if it has exited.
    pub(crate) fn note_stop_signal(&mut self, id: &str) -> bool {
        let Some(container) = self.open(id) else { return false };
        container.status.stop_signal_sent = true;
        true
    }

    /// Marks the container's state as unknown, with the reason. An exited container keeps its end.
    pub(crate) fn doubt(&mut self, id: &str, why: &str) {
        if let Some(container) = self.open(id) {
            container.doubt(why);
        }
    }

    /// Marks a container's end; false if there is no such container, or it had already exited.
    pub(crate) fn exit(
        &mut self,
        id: &str,
        at_ns: i64,
        code: i32,
        reason: ExitReason,
        message: impl Into<String>,
    ) -> bool {
        let Some(container) = self.open(id) else { return false };
        container.exit(at_ns, code, reason, message);
        counters::container_exited(reason);
        true
    }

    /// The newest creation among the containers of this name, in nanoseconds since the epoch.
    pub(crate) fn newest(&self, name: &str) -> Option<i64> {
        let of_name = self.0.values().filter(|container| container.record.spec.name == name);
        of_name.map(|container| container.record.created_at_ns).max()
    }

    /// Records of all containers.
    pub(crate) fn records(&self) -> impl Iterator<Item = &ContainerRecord> {
        self.0.values().map(|container| &*container.record)
    }

    /// Records of the containers not yet exited.
    pub(crate) fn open_records(&self) -> impl Iterator<Item = &ContainerRecord> {
        self.not_exited().map(|container| &*container.record)
    }

    /// Ids of all containers.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Ids of the containers in a stage accepted by `wanted`.
    pub(crate) fn ids_in(&self, wanted: impl Fn(ContainerStage) -> bool) -> Vec<String> {
        let found = self.0.iter().filter(|(_, container)| wanted(container.status.stage));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The limits of the containers not yet exited, with those of one container changed or added.
    pub(crate) fn limits_with<'a>(
        &'a self,
        changed: Option<(&'a str, &'a Resources)>,
    ) -> Vec<(&'a str, &'a Resources)> {
        let others = self.0.iter().filter(|(id, container)| {
            container.status.stage != ContainerStage::Exited
                && changed.is_none_or(|(changed, _)| changed != id.as_str())
        });
        others.map(|(id, container)| (id.as_str(), container.resources())).chain(changed).collect()
    }

    /// Supplementary groups of the containers not yet exited.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> {
        self.not_exited().flat_map(|container| container.status.user.groups.iter().copied())
    }

    fn not_exited(&self) -> impl Iterator<Item = &Container> {
        self.0.values().filter(|container| container.status.stage != ContainerStage::Exited)
    }

    /// The container, unless it has exited.
    fn open(&mut self, id: &str) -> Option<&mut Container> {
        self.0.get_mut(id).filter(|container| container.status.stage != ContainerStage::Exited)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use runtime_logs::LogFile;
    use runtime_spec::{ContainerPlan, ContainerSpec, ImageConfig, PodSpec};

    use super::*;
    use crate::container::GUEST_PATHS;
    use crate::io::acks::Acks;
    use crate::io::output::ContainerOutput;

    fn container(dir: &tempfile::TempDir, id: &str, mib: i64) -> Container {
        let resources = Resources { memory_limit_bytes: mib << 20, ..Resources::default() };
        let spec =
            ContainerSpec { name: id.into(), image: "image".into(), resources, ..ContainerSpec::default() };
        let image = ImageConfig { cmd: vec!["/bin/app".into()], ..ImageConfig::default() };
        let resolved = ContainerPlan::resolve(&PodSpec::default(), &spec, &image, id, &GUEST_PATHS).unwrap();
        let record = ContainerRecord {
            id: id.into(),
            pod_id: "p".into(),
            spec,
            image_id: String::new(),
            image_ref: String::new(),
            image_tag: String::new(),
            image,
            slot: proto_vmm::Slot::pmems().next().unwrap(),
            image_volumes: Vec::new(),
            disks: Vec::new(),
            guest_volumes: Vec::new(),
            host_sockets: Vec::new(),
            joined: Vec::new(),
            log_path: None,
            created_at_ns: 1,
        };
        let acks = Acks::make(&dir.path().join(id)).unwrap();
        let output = ContainerOutput::new(LogFile::discard(), acks);
        Container::new(Arc::new(record), ContainerStatus::creating(), &resolved, output, PathBuf::new())
    }

    fn two() -> (tempfile::TempDir, Containers) {
        let dir = tempfile::tempdir().unwrap();
        let mut containers = Containers::default();
        containers.insert(container(&dir, "a", 1));
        containers.insert(container(&dir, "b", 2));
        (dir, containers)
    }

    #[test]
    fn a_container_ends_once_and_keeps_its_end() {
        let (_dir, mut containers) = two();
        assert!(containers.exit("a", 5, 3, ExitReason::Error, "first"));
        assert!(!containers.exit("a", 6, 0, ExitReason::Completed, "second"));
        assert!(!containers.exit("none", 6, 0, ExitReason::Completed, ""));
        containers.set_status("a", ContainerStatus::creating());
        let status = &containers.get("a").unwrap().status;
        assert_eq!((status.stage, status.exit_code), (ContainerStage::Exited, 3));
    }

    #[test]
    fn limits_are_those_of_open_containers_with_the_changed_ones() {
        let (_dir, mut containers) = two();
        let new = Resources { memory_limit_bytes: 9 << 20, ..Resources::default() };
        let mib = |limits: Vec<(&str, &Resources)>| -> Vec<_> {
            limits.into_iter().map(|(id, one)| (id.to_owned(), one.memory_limit_bytes >> 20)).collect()
        };
        assert_eq!(mib(containers.limits_with(Some(("a", &new)))), [("b".into(), 2), ("a".into(), 9)]);
        assert_eq!(mib(containers.limits_with(Some(("c", &new)))).len(), 3);
        containers.exit("b", 5, 0, ExitReason::Completed, "");
        assert_eq!(mib(containers.limits_with(None)), [("a".into(), 1)]);
    }

    #[test]
    fn a_name_is_one_containers_until_it_is_removed() {
        let (_dir, mut containers) = two();
        let taken = containers.admit("p", PodStage::Ready, "a", 0).unwrap_err();
        assert_eq!(taken.kind(), PodErrorKind::AlreadyExists);
        containers.admit("p", PodStage::Ready, "a", 1).unwrap();
        let ended = containers.get("a").unwrap().ended.subscribe();
        containers.remove("a");
        assert!(*ended.borrow());
        containers.admit("p", PodStage::Ready, "a", 0).unwrap();
    }
}
