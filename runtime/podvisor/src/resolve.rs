//! The container or the pod meant by a command's argument: an id, its beginning, or a name. Names are looked
//! up in the daemon's lists.

use anyhow::{Context, bail};

use crate::daemon::Daemon;
use crate::listing::{self, Pod};
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
    match containers.collect::<Vec<_>>()[..] {
        [one] => Ok(one.id.clone()),
        [] => bail!("the pod {sought} has no container"),
        ref several => {
            let names: Vec<&str> = several.iter().map(|one| one.name.as_str()).collect();
            bail!("the pod {sought} has several containers: {}. Name one as {sought}/NAME", names.join(", "))
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
    use proto_cri::v1::ContainerState::ContainerRunning;

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
        assert!(container_of(&pods(), "other").unwrap_err().to_string().contains("\"other\""));
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
