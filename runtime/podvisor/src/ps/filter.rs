//! The selection of pods and containers for `podvisor ps`. Pure.

use std::collections::BTreeMap;

use crate::listing::{Container, Pod, State};
use crate::one_by_one::Subject as _;

/// The filters. All given ones must hold.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Show ended containers and stopped pods, too.
    #[arg(short, long)]
    all: bool,
    /// Show pods of this namespace only.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Show this pod only: its id, or its beginning, or its name, or NAMESPACE/NAME.
    #[arg(short, long)]
    pod: Option<String>,
    /// Show only pods and containers with this label; may be repeated.
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Show only containers in this state, also ended ones if requested; may be repeated.
    #[arg(short, long = "state", value_name = "STATE", value_enum)]
    states: Vec<State>,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is no label; labels are KEY=VALUE")),
    }
}

impl Filter {
    /// Returns the selected pods, each with its selected containers.
    pub(super) fn apply(&self, pods: Vec<Pod>) -> Vec<Pod> {
        pods.into_iter().filter_map(|pod| self.passed(pod)).collect()
    }

    fn passed(&self, mut pod: Pod) -> Option<Pod> {
        if !self.names(&pod) {
            return None;
        }
        let had_labels = self.has_labels(&pod.labels, &BTreeMap::new());
        let labels = std::mem::take(&mut pod.labels);
        pod.containers.retain(|container| self.shows(container, &labels));
        pod.labels = labels;
        // A pod without containers is shown by itself.
        let alone = had_labels && self.states.is_empty() && (self.all || pod.ready);
        (alone || !pod.containers.is_empty()).then_some(pod)
    }

    fn names(&self, pod: &Pod) -> bool {
        let means = |sought: &String| {
            !sought.is_empty() && (pod.id.starts_with(sought) || pod.name == *sought || pod.path() == *sought)
        };
        self.namespace.as_ref().is_none_or(|namespace| pod.namespace == *namespace)
            && self.pod.as_ref().is_none_or(means)
    }

    fn shows(&self, container: &Container, of_pod: &BTreeMap<String, String>) -> bool {
        let state = match &self.states[..] {
            [] => self.all || container.state != State::Exited,
            states => states.contains(&container.state),
        };
        state && self.has_labels(of_pod, &container.labels)
    }

    /// A kubelet gives a pod's labels to the pod, and only its own to containers.
    fn has_labels(&self, pod: &BTreeMap<String, String>, container: &BTreeMap<String, String>) -> bool {
        let has = |labels: &BTreeMap<_, _>, key, value| labels.get(key) == Some(value);
        self.labels.iter().all(|(key, value)| has(pod, key, value) || has(container, key, value))
    }
}

#[cfg(test)]
mod tests {
    use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning, ContainerUnknown};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};

    /// A running pod, an ended one, one with a container in an unknown state, and one without containers.
    fn pods() -> Vec<Pod> {
        let mut web = made::pod("aa1", "shop", "web", true);
        web.labels = [("app".to_owned(), "web".to_owned())].into();
        let pods = vec![
            web,
            made::pod("bb1", "shop", "done", false),
            made::pod("cc1", "default", "lost", false),
            made::pod("dd1", "default", "empty", true),
        ];
        let mut side = made::container("22", "aa1", "side", ContainerExited);
        side.labels = [("tier".to_owned(), "side".to_owned())].into();
        let containers = vec![
            made::container("11", "aa1", "app", ContainerRunning),
            side,
            made::container("33", "bb1", "job", ContainerExited),
            made::container("44", "cc1", "app", ContainerUnknown),
        ];
        listing(pods, containers, &NodeStatus::default())
    }

    fn shown(filter: &Filter) -> Vec<String> {
        let pods = filter.apply(pods());
        let names = |pod: &Pod| match &pod.containers[..] {
            [] => vec![pod.name.clone()],
            containers => containers.iter().map(|one| format!("{}/{}", pod.name, one.name)).collect(),
        };
        pods.iter().flat_map(names).collect()
    }

    #[test]
    fn ended_containers_and_stopped_pods_are_shown_when_asked_for() {
        assert_eq!(shown(&Filter::default()), ["empty", "lost/app", "web/app"]);
        let all = Filter { all: true, ..Filter::default() };
        assert_eq!(shown(&all), ["empty", "lost/app", "done/job", "web/app", "web/side"]);
    }

    #[test]
    fn a_state_that_is_asked_for_is_shown_and_no_other() {
        let states = |states: &[State]| Filter { states: states.to_vec(), ..Filter::default() };
        assert_eq!(shown(&states(&[State::Exited])), ["done/job", "web/side"]);
        assert_eq!(shown(&states(&[State::Unknown, State::Running])), ["lost/app", "web/app"]);
    }

    #[test]
    fn pods_are_selected_by_namespace_name_and_id() {
        let namespace = Filter { namespace: Some("shop".into()), ..Filter::default() };
        assert_eq!(shown(&namespace), ["web/app"]);
        for sought in ["aa", "web", "shop/web"] {
            assert_eq!(
                shown(&Filter { pod: Some(sought.into()), ..Filter::default() }),
                ["web/app"],
                "{sought}"
            );
        }
        for sought in ["", "default/web", "we"] {
            assert!(shown(&Filter { pod: Some(sought.into()), ..Filter::default() }).is_empty(), "{sought}");
        }
    }

    #[test]
    fn a_label_may_be_the_pods_or_the_containers() {
        let labelled = |labels: &[&str]| Filter {
            all: true,
            labels: labels.iter().map(|text| parse_label(text).unwrap()).collect(),
            ..Filter::default()
        };
        assert_eq!(shown(&labelled(&["app=web"])), ["web/app", "web/side"]);
        assert_eq!(shown(&labelled(&["app=web", "tier=side"])), ["web/side"]);
        assert!(shown(&labelled(&["app="])).is_empty());
        assert!(parse_label("app").is_err() && parse_label("=web").is_err());
    }
}
