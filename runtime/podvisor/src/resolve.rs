//! The container or the pod meant by a command's argument: an id, its beginning, or a name. Names are looked
//! up in the daemon's lists.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use crate::daemon::Daemon;
use crate::listing::{self, Container, Pod};
use crate::sought::{Kind, candidates, find};

/// Digits of a whole id. Programs use whole ids, and nothing is listed for them.
const ID_DIGITS: usize = 64;

/// The container's id. A pod with one container stands for it.
///
/// # Errors
/// The daemon does not answer, or the argument means no container, or several.
pub(crate) async fn container(daemon: &Daemon, sought: &str) -> anyhow::Result<String> {
    // A pod has an id like this, too.
    if is_id(sought) && daemon.has_container(sought).await? {
        return Ok(sought.to_owned());
    }
    let (pods, _) = listing::ask(daemon).await?;
    container_of(&pods, sought)
}

/// The pod's id. A container stands for its pod.
///
/// # Errors
/// The daemon does not answer, or the argument means no pod, or several.
pub(crate) async fn pod(daemon: &Daemon, sought: &str) -> anyhow::Result<String> {
    if is_id(sought) && !daemon.has_container(sought).await? {
        return Ok(sought.to_owned());
    }
    let (pods, _) = listing::ask(daemon).await?;
    Ok(pod_among(&pods, sought)?.id.clone())
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn container_of(pods: &[Pod], sought: &str) -> anyhow::Result<String> {
    let all = candidates(pods);
    let found = find(&all, sought)?;
    if found.kind == Kind::Container {
        return Ok(found.id.clone());
    }
    let containers = pods.iter().filter(|pod| pod.id == found.id).flat_map(|pod| &pod.containers);
    // A kubelet keeps the last ended container of a name beside its successor. The newest one counts.
    let mut newest: BTreeMap<&str, &Container> = BTreeMap::new();
    for container in containers {
        newest.insert(&container.name, container);
    }
    match newest.values().collect::<Vec<_>>()[..] {
        [one] => Ok(one.id.clone()),
        [] => bail!("the pod {sought} has no container"),
        _ => {
            let (names, path) = (newest.keys().copied().collect::<Vec<_>>().join(", "), &found.path);
            bail!("the pod {sought} has several containers: {names}. Name one as {path}/NAME")
        }
    }
}

/// The pod among these.
///
/// # Errors
/// The argument means no pod, or several.
fn pod_among<'a>(pods: &'a [Pod], sought: &str) -> anyhow::Result<&'a Pod> {
    let all = candidates(pods);
    let found = find(&all, sought)?;
    let has = |pod: &&Pod| pod.id == found.id || pod.containers.iter().any(|one| one.id == found.id);
    pods.iter().find(has).with_context(|| format!("{sought} has no pod"))
}

#[cfg(test)]
mod tests {
    use proto_cri::v1;
    use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};

    fn pods() -> Vec<Pod> {
        let pods = vec![
            made::pod("p1", "podvisor-run", "web", true),
            made::pod("p2", "shop", "cart", true),
            made::pod("p3", "shop", "empty", true),
        ];
        let containers = vec![
            made::container("c1", "p1", "main", ContainerRunning),
            made::container("c2", "p2", "app", ContainerRunning),
            made::container("c3", "p2", "mesh", ContainerRunning),
        ];
        listing(pods, containers, &NodeStatus::default())
    }

    #[test]
    fn a_pods_name_means_its_only_container() {
        assert_eq!(container_of(&pods(), "web").unwrap(), "c1");
        assert_eq!(container_of(&pods(), "shop/cart/mesh").unwrap(), "c3");
        let said = container_of(&pods(), "shop/cart").unwrap_err().to_string();
        assert!(said.contains("several containers: ") && said.contains("shop/cart/NAME"), "{said}");
        assert!(container_of(&pods(), "empty").unwrap_err().to_string().contains("no container"));
        let said = container_of(&pods(), "cart").unwrap_err().to_string();
        assert!(said.contains(": app, mesh. ") && said.contains("shop/cart/NAME"), "{said}");
        assert!(container_of(&pods(), "other").unwrap_err().to_string().contains("\"other\""));
    }

    #[test]
    fn of_the_containers_of_one_name_the_newest_counts() {
        for last in [ContainerRunning, ContainerExited] {
            let of = |id: &str, created_at, state| v1::Container {
                created_at,
                ..made::container(id, "p1", "app", state)
            };
            let containers =
                vec![of("c3", 30, last), of("c1", 10, ContainerExited), of("c2", 20, ContainerExited)];
            let pods = vec![made::pod("p1", "shop", "cart", true)];
            let pods = listing(pods, containers, &NodeStatus::default());
            for sought in ["cart", "shop/cart", "shop/cart/app", "cart/app", "app"] {
                assert_eq!(container_of(&pods, sought).unwrap(), "c3", "{sought} {last:?}");
            }
            assert_eq!(container_of(&pods, "c1").unwrap(), "c1");
        }
    }

    #[test]
    fn a_containers_name_means_its_pod() {
        assert_eq!(pod_among(&pods(), "web").unwrap().id, "p1");
        assert_eq!(pod_among(&pods(), "app").unwrap().id, "p2");
        assert_eq!(pod_among(&pods(), "c3").unwrap().id, "p2");
    }

    #[test]
    fn whole_ids_are_not_looked_up() {
        assert!(is_id(&"0a".repeat(32)));
        assert!(!is_id("web") && !is_id(&"x".repeat(64)) && !is_id(&"0".repeat(63)));
    }
}
