//! The pod's containers by id. The lock is only held for moments.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::containers::container::{Container, Exec, Phase};
use crate::containers::error::ContainerError;
use crate::containers::id::check_id;
use crate::process::Process;

/// Most containers of one pod, including ended ones. A kubelet keeps far fewer.
const CONTAINERS_MAX: usize = 512;

/// The pod's containers.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    known: Mutex<HashMap<String, Arc<Container>>>,
    /// Number of quota projects assigned so far. Project 0 holds all other files.
    projects: AtomicU32,
}

impl Containers {
    /// The container with this id.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<Container>, ContainerError> {
        self.known().get(id).cloned().ok_or_else(|| ContainerError::NoContainer(id.to_owned()))
    }

    /// Returns the exec's process, or the container's first process if `exec_id` is empty.
    pub(crate) fn process(&self, id: &str, exec_id: &str) -> Result<Arc<Process>, ContainerError> {
        let container = self.get(id)?;
        if exec_id.is_empty() {
            let phase = container.phase();
            return phase.first().cloned().ok_or_else(|| container.wrong_phase(&phase));
        }
        match container.execs().get(exec_id) {
            Some(Exec::Started(process)) => Ok(Arc::clone(process)),
            _ => Err(ContainerError::NoExec { container: id.to_owned(), exec: exec_id.to_owned() }),
        }
    }

    /// Notes that the host knows an exec's exit. The exec is forgotten if its output is delivered, too.
    pub(crate) fn exec_reported(&self, id: &str, exec_id: &str) {
        if let Ok(process) = self.process(id, exec_id) {
            process.mark_reported();
            self.forget_if_delivered(id, exec_id, &process);
        }
    }

    /// Notes the end of the connection for an exec's output. If the host left in the middle of the output,
    /// the exec is ended, too: no client will ask for it again.
    pub(crate) fn output_served(&self, id: &str, exec_id: &str, broke_off: bool) {
        let Ok(process) = self.process(id, exec_id) else { return };
        if !broke_off {
            return self.forget_if_delivered(id, exec_id, &process);
        }
        let Ok(container) = self.get(id) else { return };
        let exec_id = exec_id.to_owned();
        tokio::spawn(async move {
            process.hang_up().await;
            container.execs().remove(&exec_id);
        });
    }

    fn forget_if_delivered(&self, id: &str, exec_id: &str, process: &Process) {
        if process.is_delivered()
            && let Ok(container) = self.get(id)
        {
            container.execs().remove(exec_id);
        }
    }

    /// The PID namespace of a running container. Another container joins it.
    pub(crate) fn pid_namespace(&self, id: &str) -> Result<PathBuf, ContainerError> {
        let target = |error| ContainerError::Target(Box::new(error));
        let container = self.get(id).map_err(target)?;
        let phase = container.phase();
        match &*phase {
            Phase::Running { first } if !first.is_collected() => {
                Ok(PathBuf::from(format!("/proc/{}/ns/pid", first.pid())))
            }
            other => Err(target(container.wrong_phase(other))),
        }
    }

    /// Takes the id for a new container.
    pub(crate) fn reserve(&self, id: &str, image_slot: u32) -> Result<Arc<Container>, ContainerError> {
        check_id(id)?;
        let mut known = self.known();
        if known.contains_key(id) {
            return Err(ContainerError::Exists(id.to_owned()));
        }
        if known.len() >= CONTAINERS_MAX {
            return Err(ContainerError::TooManyContainers(CONTAINERS_MAX));
        }
        let project = self.projects.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let container = Arc::new(Container::new(id, image_slot, project));
        known.insert(id.to_owned(), Arc::clone(&container));
        Ok(container)
    }

    /// Frees the id of a removed container.
    pub(crate) fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    /// All containers, in any order.
    pub(crate) fn all(&self) -> Vec<Arc<Container>> {
        self.known().values().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Container>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_once() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        assert!(matches!(containers.reserve("c1", 18), Err(ContainerError::Exists(_))));
        containers.forget("c1");
        containers.reserve("c1", 17).unwrap();
    }

    #[test]
    fn containers_are_bounded() {
        let containers = Containers::default();
        for number in 0..CONTAINERS_MAX {
            containers.reserve(&format!("c{number}"), 17).unwrap();
        }
        assert!(matches!(containers.reserve("more", 17), Err(ContainerError::TooManyContainers(_))));
    }

    #[test]
    fn a_container_being_created_has_no_process_yet() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        assert!(matches!(containers.process("c1", ""), Err(ContainerError::Phase { .. })));
        assert!(matches!(containers.process("c1", "e1"), Err(ContainerError::NoExec { .. })));
        assert!(matches!(containers.process("c2", ""), Err(ContainerError::NoContainer(_))));
    }

    #[test]
    fn only_a_running_containers_pid_namespace_can_be_joined() {
        let containers = Containers::default();
        containers.reserve("c1", 17).unwrap();
        for id in ["c1", "c2"] {
            assert!(matches!(containers.pid_namespace(id), Err(ContainerError::Target(_))), "{id}");
        }
    }
}
