//! Whether a container may be made, started or changed now. Pure: no state of its own, no effects.

use crate::error::{PodError, PodErrorKind};
use crate::record::{ContainerStage, PodStage};
use crate::view::ContainerState;

/// Containers of one pod, exited ones included: far above the number kept by a kubelet.
pub(crate) const CONTAINERS_MAX: usize = 256;

/// An existing container, as seen by admission.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) attempt: u32,
}

/// Checks whether a container of this name may be created in a pod in this stage.
pub(crate) fn create<'a>(
    pod_id: &str,
    stage: PodStage,
    name: &str,
    attempt: u32,
    known: impl ExactSizeIterator<Item = Known<'a>>,
) -> Result<(), PodError> {
    if stage != PodStage::Ready {
        return Err(PodError::new(PodErrorKind::FailedPrecondition, format!("pod {pod_id} is not ready")));
    }
    if known.len() >= CONTAINERS_MAX {
        let text = format!("pod {pod_id} has {CONTAINERS_MAX} containers already, the maximum");
        return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
    }
    let mut known = known;
    match known.find(|one| one.name == name && one.attempt == attempt) {
        Some(one) => {
            let text =
                format!("pod {pod_id} has a container {name:?}, attempt {attempt}, already: {}", one.id);
            Err(PodError::new(PodErrorKind::AlreadyExists, text))
        }
        None => Ok(()),
    }
}

/// Checks whether the container may be started.
pub(crate) fn start(id: &str, pod: PodStage, stage: ContainerStage) -> Result<(), PodError> {
    let why = match stage {
        _ if pod != PodStage::Ready => "its pod is not ready",
        ContainerStage::Created => return Ok(()),
        ContainerStage::Creating => "it is being made",
        ContainerStage::Starting | ContainerStage::Running => "it runs already",
        ContainerStage::Exited => "it has ended",
        ContainerStage::Unknown => "its state is unknown",
    };
    Err(PodError::new(PodErrorKind::FailedPrecondition, format!("container {id} cannot be started: {why}")))
}

/// Checks whether the container's log may go on in a new file.
pub(crate) fn reopen_log(id: &str, state: ContainerState) -> Result<(), PodError> {
    if state != ContainerState::Exited {
        return Ok(());
    }
    // The file would stay empty. After a failed call there must be no file (api.proto).
    let text = format!("container {id} has ended, so its log does not go on");
    Err(PodError::new(PodErrorKind::FailedPrecondition, text))
}

/// Checks whether the container's limits may be changed.
pub(crate) fn update(id: &str, pod: PodStage, stage: ContainerStage) -> Result<(), PodError> {
    let why = match stage {
        _ if pod != PodStage::Ready => "its pod is not ready",
        ContainerStage::Created | ContainerStage::Running | ContainerStage::Unknown => return Ok(()),
        ContainerStage::Creating | ContainerStage::Starting => "it is being made",
        ContainerStage::Exited => "it has ended",
    };
    let text = format!("the limits of container {id} cannot be changed: {why}");
    Err(PodError::new(PodErrorKind::FailedPrecondition, text))
}

/// Checks whether a command may run in the container.
pub(crate) fn exec(id: &str, stage: ContainerStage) -> Result<(), PodError> {
    if stage == ContainerStage::Running {
        return Ok(());
    }
    let text = format!("container {id} does not run, so no command can run in it");
    Err(PodError::new(PodErrorKind::FailedPrecondition, text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(names: &[(&'static str, u32)]) -> std::vec::IntoIter<Known<'static>> {
        let all: Vec<_> = names.iter().map(|&(name, attempt)| Known { id: "c0", name, attempt }).collect();
        all.into_iter()
    }

    #[test]
    fn a_free_name_in_a_ready_pod_is_admitted() {
        create("p", PodStage::Ready, "web", 1, known(&[("web", 0), ("db", 1)])).unwrap();
    }

    #[test]
    fn a_taken_name_is_refused_with_its_holder() {
        let error = create("p", PodStage::Ready, "web", 0, known(&[("web", 0)])).unwrap_err();
        assert_eq!(error.kind(), PodErrorKind::AlreadyExists);
        assert!(error.to_string().contains("c0"), "{error}");
    }

    #[test]
    fn a_pod_that_is_not_ready_admits_nothing() {
        for stage in [PodStage::Starting, PodStage::Dead, PodStage::Stopping, PodStage::Stopped] {
            let error = create("p", stage, "web", 0, known(&[])).unwrap_err();
            assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
        }
    }

    #[test]
    fn only_a_created_container_can_be_started() {
        use ContainerStage::{Created, Creating, Exited, Running, Starting, Unknown};
        for stage in [Creating, Starting, Running, Exited, Unknown] {
            assert!(start("c", PodStage::Ready, stage).is_err(), "{stage:?}");
        }
        start("c", PodStage::Ready, Created).unwrap();
        assert!(start("c", PodStage::Dead, Created).is_err());
    }

    #[test]
    fn limits_change_until_the_end() {
        use ContainerStage::{Created, Exited, Running};
        for (stage, admitted) in [(Created, true), (Running, true), (Exited, false)] {
            assert_eq!(update("c", PodStage::Ready, stage).is_ok(), admitted, "{stage:?}");
            assert!(update("c", PodStage::Dead, stage).is_err());
        }
    }

    #[test]
    fn exec_in_a_stopped_container_is_refused() {
        assert_eq!(exec("c", ContainerStage::Exited).unwrap_err().kind(), PodErrorKind::FailedPrecondition);
        exec("c", ContainerStage::Running).unwrap();
    }

    proptest! {
        #[test]
        fn a_container_beyond_the_most_is_refused(count in 0usize..600) {
            let names: Vec<String> = (0..count).map(|i| format!("c{i}")).collect();
            let all: Vec<_> = names.iter().map(|name| Known { id: name, name, attempt: 0 }).collect();
            let admitted = create("p", PodStage::Ready, "new", 0, all.into_iter()).is_ok();
            prop_assert_eq!(admitted, count < CONTAINERS_MAX);
        }
    }
}
