//! List filters. All set conditions must hold.

use std::collections::BTreeMap;

use proto_cri::v1;
use runtime_pod::{ContainerView, PodView};

use super::container_out::container_state;
use super::pod_out::pod_state;

/// Returns true if the pod passes the filter. Checked before the conversion: most calls want few pods of
/// many.
pub(crate) fn pod_matches(filter: &v1::PodSandboxFilter, pod: &PodView) -> bool {
    id_matches(&filter.id, &pod.id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == pod_state(pod.state))
        && labels_match(&filter.label_selector, &pod.spec.labels)
}

/// Returns true if the container passes the filter.
pub(crate) fn container_matches(filter: &v1::ContainerFilter, container: &ContainerView) -> bool {
    id_matches(&filter.id, &container.id)
        && id_matches(&filter.pod_sandbox_id, &container.pod_id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == container_state(container.state))
        && labels_match(&filter.label_selector, &container.spec.labels)
}

/// Returns true if an item of another runtime's list passes the filter.
pub(crate) fn pod_item_matches(filter: &v1::PodSandboxFilter, pod: &v1::PodSandbox) -> bool {
    id_matches(&filter.id, &pod.id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == pod.state())
        && labels_match(&filter.label_selector, &pod.labels)
}

/// Returns true if an item of another runtime's list passes the filter.
pub(crate) fn container_item_matches(filter: &v1::ContainerFilter, container: &v1::Container) -> bool {
    id_matches(&filter.id, &container.id)
        && id_matches(&filter.pod_sandbox_id, &container.pod_sandbox_id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == container.state())
        && labels_match(&filter.label_selector, &container.labels)
}

/// Returns true if an image of another runtime's list has this name. The empty name matches every image.
pub(crate) fn image_item_matches(name: &str, image: &v1::Image) -> bool {
    let mut names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
    name.is_empty() || names.any(|known| known == name)
}

/// Returns true if the filter selects the container's stats.
pub(crate) fn container_stats_match(filter: &v1::ContainerStatsFilter, container: &ContainerView) -> bool {
    id_matches(&filter.id, &container.id)
        && id_matches(&filter.pod_sandbox_id, &container.pod_id)
        && filter.label_selector.iter().all(|(key, value)| container.spec.labels.get(key) == Some(value))
}

/// Returns true if the filter selects the pod's stats.
pub(crate) fn pod_stats_match(filter: &v1::PodSandboxStatsFilter, pod: &PodView) -> bool {
    id_matches(&filter.id, &pod.id)
        && filter.label_selector.iter().all(|(key, value)| pod.spec.labels.get(key) == Some(value))
}

/// The whole id, or its beginning as typed by people to crictl. Empty for all.
fn id_matches(wanted: &str, id: &str) -> bool {
    id.starts_with(wanted)
}

fn labels_match(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use runtime_pod::{ContainerState, PodState};
    use runtime_spec::{ContainerSpec, PodSpec};

    use super::*;

    fn container() -> ContainerView {
        let labels = [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "1".to_owned())].into();
        ContainerView {
            id: "abc123".into(),
            pod_id: "p1".into(),
            spec: ContainerSpec { labels, ..Default::default() },
            state: ContainerState::Running,
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
            label_selector: container().spec.labels.into_iter().collect(),
        };
        assert!(container_matches(&filter, &container()));
        assert!(!container_matches(
            &v1::ContainerFilter { pod_sandbox_id: "p2".into(), ..filter.clone() },
            &container()
        ));
        let state = Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerExited.into() });
        assert!(!container_matches(&v1::ContainerFilter { state, ..filter.clone() }, &container()));
        let labels = [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "2".to_owned())].into();
        assert!(!container_matches(&v1::ContainerFilter { label_selector: labels, ..filter }, &container()));
    }

    #[test]
    fn a_label_that_is_not_there_does_not_match_the_empty_value() {
        assert!(!labels_match(&[("x".to_owned(), String::new())].into(), &BTreeMap::new()));
    }

    #[test]
    fn pods_are_selected_by_state_id_and_labels() {
        let pod = PodView {
            id: "p1".into(),
            state: PodState::Ready,
            spec: PodSpec { labels: [("a".to_owned(), "b".to_owned())].into(), ..Default::default() },
            ..Default::default()
        };
        let state = |state: v1::PodSandboxState| Some(v1::PodSandboxStateValue { state: state.into() });
        let ready = state(v1::PodSandboxState::SandboxReady);
        let filter = v1::PodSandboxFilter { id: "p".into(), state: ready, ..Default::default() };
        assert!(pod_matches(&filter, &pod));
        let gone = state(v1::PodSandboxState::SandboxNotready);
        assert!(!pod_matches(&v1::PodSandboxFilter { state: gone, ..filter.clone() }, &pod));
        assert!(!pod_matches(&v1::PodSandboxFilter { id: "p1x".into(), ..filter.clone() }, &pod));
        let labels = [("a".to_owned(), "c".to_owned())].into();
        assert!(!pod_matches(&v1::PodSandboxFilter { label_selector: labels, ..filter }, &pod));
    }
}
