//! List filters: every condition that is set must hold.

use std::collections::HashMap;

use proto_cri::v1;

/// Whether the pod passes the filter.
pub(crate) fn pod_matches(filter: &v1::PodSandboxFilter, pod: &v1::PodSandbox) -> bool {
    id_matches(&filter.id, &pod.id)
        && filter.state.as_ref().is_none_or(|state| state.state == pod.state)
        && labels_match(&filter.label_selector, &pod.labels)
}

/// Whether the container passes the filter.
pub(crate) fn container_matches(filter: &v1::ContainerFilter, container: &v1::Container) -> bool {
    id_matches(&filter.id, &container.id)
        && id_matches(&filter.pod_sandbox_id, &container.pod_sandbox_id)
        && filter.state.as_ref().is_none_or(|state| state.state == container.state)
        && labels_match(&filter.label_selector, &container.labels)
}

/// The whole id, or its beginning as people type it to crictl; empty for all.
fn id_matches(wanted: &str, id: &str) -> bool {
    id.starts_with(wanted)
}

fn labels_match(wanted: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> v1::Container {
        v1::Container {
            id: "abc123".into(),
            pod_sandbox_id: "p1".into(),
            state: v1::ContainerState::ContainerRunning.into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn an_empty_filter_passes_everything() {
        assert!(container_matches(&v1::ContainerFilter::default(), &container()));
    }

    #[test]
    fn all_conditions_must_hold() {
        let filter = v1::ContainerFilter {
            id: "abc".into(),
            pod_sandbox_id: "p1".into(),
            state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
            label_selector: [("app".to_owned(), "web".to_owned())].into(),
        };
        assert!(container_matches(&filter, &container()));
        assert!(!container_matches(
            &v1::ContainerFilter { pod_sandbox_id: "p2".into(), ..filter.clone() },
            &container()
        ));
        let state = Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerExited.into() });
        assert!(!container_matches(&v1::ContainerFilter { state, ..filter.clone() }, &container()));
        let labels = [("app".to_owned(), "db".to_owned())].into();
        assert!(!container_matches(&v1::ContainerFilter { label_selector: labels, ..filter }, &container()));
    }

    #[test]
    fn a_label_that_is_not_there_does_not_match_the_empty_value() {
        assert!(!labels_match(&[("x".to_owned(), String::new())].into(), &HashMap::new()));
    }
}
