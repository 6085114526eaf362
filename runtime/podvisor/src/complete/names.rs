//! Candidates for names. Pure.

use proto_cri::v1;

use crate::listing::{Container, Pod, State};
use crate::one_by_one::Subject as _;
use crate::show::units;

/// A name, and a few words about what has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) about: String,
}

/// The shortest names that mean one pod each.
pub(super) fn pods(all: &[Pod]) -> Vec<Named> {
    let named = |pod: &Pod| Named { name: pod_name(pod, all), about: about(pod) };
    all.iter().map(named).filter(is_plain).collect()
}

/// Names of running containers: a pod's own name if it has one container, else those of its containers.
pub(super) fn containers(all: &[Pod]) -> Vec<Named> {
    let of = |pod: &Pod| {
        let name = pod_name(pod, all);
        let of_one = |container: &Container| Named {
            name: match pod.containers.len() {
                1 => name.clone(),
                _ => path(pod, container),
            },
            about: container.image.clone(),
        };
        pod.containers.iter().filter(|one| one.state == State::Running).map(of_one).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).filter(is_plain).collect()
}

/// NAMESPACE/POD/CONTAINER of all containers.
pub(super) fn paths(all: &[Pod]) -> Vec<Named> {
    let of = |pod: &Pod| {
        let named = |container: &Container| Named {
            name: path(pod, container),
            about: format!("{}, {}", container.state.name(), container.image),
        };
        pod.containers.iter().map(named).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).filter(is_plain).collect()
}

/// Tags of images, and the beginnings of the ids of those without a tag.
pub(super) fn images(all: &[v1::Image]) -> Vec<Named> {
    let of = |image: &v1::Image| {
        let id = units::short_digest(&image.id);
        let named = |name: &String| Named { name: name.clone(), about: id.to_owned() };
        let without = || vec![Named { name: id.to_owned(), about: image.repo_digests.join(" ") }];
        if image.repo_tags.is_empty() { without() } else { image.repo_tags.iter().map(named).collect() }
    };
    all.iter().flat_map(of).filter(is_plain).collect()
}

fn pod_name(pod: &Pod, all: &[Pod]) -> String {
    let others = all.iter().filter(|other| other.name == pod.name);
    if others.count() == 1 { pod.name.clone() } else { pod.path() }
}

fn path(pod: &Pod, container: &Container) -> String {
    format!("{}/{}", pod.path(), container.name)
}

fn about(pod: &Pod) -> String {
    let state = if pod.ready { "ready" } else { "ended" };
    format!("{state}, namespace {}, {} containers", pod.namespace, pod.containers.len())
}

/// Returns true if a shell takes the name as it is. Any client may have given it, and a completed line is run
/// by a person.
fn is_plain(named: &Named) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@".contains(letter);
    let is_whole = named.name.split('/').all(|part| !part.is_empty());
    is_whole && !named.name.starts_with('-') && named.name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};

    fn pods_of(names: &[(&str, &str, &str)]) -> Vec<Pod> {
        let pods = names.iter().map(|(id, namespace, name)| made::pod(id, namespace, name, true)).collect();
        let containers = vec![
            made::container("c1", "p1", "main", ContainerRunning),
            made::container("c2", "p2", "app", ContainerRunning),
            made::container("c3", "p2", "mesh", ContainerExited),
        ];
        listing(pods, containers, &NodeStatus::default())
    }

    fn names(named: Vec<Named>) -> Vec<String> {
        let mut names: Vec<String> = named.into_iter().map(|one| one.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_pod_has_the_shortest_name_that_means_it() {
        let all = pods_of(&[("p1", "a", "web"), ("p2", "b", "web"), ("p3", "b", "db")]);
        assert_eq!(names(pods(&all)), ["a/web", "b/web", "db"]);
    }

    #[test]
    fn a_command_is_offered_for_running_containers_alone() {
        let all = pods_of(&[("p1", "a", "web"), ("p2", "b", "cart")]);
        assert_eq!(names(containers(&all)), ["b/cart/app", "web"]);
        assert_eq!(names(paths(&all)), ["a/web/main", "b/cart/app", "b/cart/mesh"]);
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_not_offered() {
        for hostile in ["$(reboot)", "a;b", "a b", "-rf", "a\nb", "", "é"] {
            let all = pods_of(&[("p1", "a", hostile)]);
            assert_eq!(names(pods(&all)), Vec::<String>::new(), "{hostile:?}");
        }
    }

    #[test]
    fn an_image_without_a_tag_has_the_beginning_of_its_id() {
        let image = |id: &str, tags: &[&str]| v1::Image {
            id: format!("sha256:{}", id.repeat(64)),
            repo_tags: tags.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        let all = [image("a", &["r:5000/app:1", "r:5000/app:2"]), image("b", &[])];
        assert_eq!(names(images(&all)), ["bbbbbbbbbbbb", "r:5000/app:1", "r:5000/app:2"]);
    }
}
