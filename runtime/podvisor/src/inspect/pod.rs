//! Entries for a pod with its containers, from PodSandboxStatus. Pure.

use proto_cri::v1;
use serde_json::{Value, json};

use super::container;
use crate::listing::Pod;
use crate::show::entries::{Entries, info, map, mappings, time, word};

/// The entries of a pod. Its runtime is taken from the list.
pub(super) fn entries(answer: v1::PodSandboxStatusResponse, listed: &Pod) -> Entries {
    let status = answer.status.unwrap_or_default();
    let state = word(status.state().as_str_name(), "SANDBOX_");
    let v1::PodSandboxMetadata { name, uid, namespace, attempt } = status.metadata.unwrap_or_default();
    // Another runtime may leave the containers out of this answer. Then they come from its list.
    let containers: Vec<Value> = if answer.containers_statuses.is_empty() {
        listed.containers.iter().map(|one| json!(one)).collect()
    } else {
        answer.containers_statuses.into_iter().map(|one| container::of_status(one).into_json()).collect()
    };
    Entries::default()
        .with("kind", "pod")
        .with("id", status.id)
        .with("namespace", namespace)
        .with("name", name)
        .with("uid", uid)
        .with("attempt", attempt)
        .with("state", state)
        .with("createdAt", time(status.created_at))
        .with("runtime", json!(listed.runtime))
        .with("handler", status.runtime_handler)
        .with("addresses", addresses(status.network.unwrap_or_default()))
        .with("namespaces", namespaces(status.linux.unwrap_or_default()))
        .with("labels", map(status.labels))
        .with("annotations", map(status.annotations))
        .with("info", info(answer.info))
        .with("containers", containers)
}

fn addresses(network: v1::PodSandboxNetworkStatus) -> Vec<String> {
    let others = network.additional_ips.into_iter().map(|one| one.ip);
    std::iter::once(network.ip).chain(others).filter(|ip| !ip.is_empty()).collect()
}

fn namespaces(linux: v1::LinuxPodSandboxStatus) -> Value {
    let Some(options) = linux.namespaces.and_then(|namespaces| namespaces.options) else {
        return Value::Null;
    };
    let mode = |mode: v1::NamespaceMode| word(mode.as_str_name(), "");
    let user = options.userns_options.as_ref().map(|user| {
        json!({ "mode": mode(user.mode()), "uids": mappings(&user.uids), "gids": mappings(&user.gids) })
    });
    json!({
        "network": mode(options.network()),
        "pid": mode(options.pid()),
        "ipc": mode(options.ipc()),
        "target": options.target_id,
        "user": user,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};
    use crate::show::page;

    fn answer() -> v1::PodSandboxStatusResponse {
        let options = v1::NamespaceOption { network: v1::NamespaceMode::Pod.into(), ..Default::default() };
        v1::PodSandboxStatusResponse {
            status: Some(v1::PodSandboxStatus {
                id: "aa1".into(),
                metadata: made::pod("aa1", "shop", "web", true).metadata,
                network: Some(v1::PodSandboxNetworkStatus {
                    ip: "10.0.0.2".into(),
                    additional_ips: vec![v1::PodIp { ip: "fd00::2".into() }],
                }),
                linux: Some(v1::LinuxPodSandboxStatus {
                    namespaces: Some(v1::Namespace { options: Some(options) }),
                }),
                annotations: [("note".to_owned(), "a\x1b[2J\nb".to_owned())].into(),
                created_at: 1_700_000_000_000_000_000,
                ..Default::default()
            }),
            info: [("info".to_owned(), r#"{"unclean":"a disk","vm":{"memory_bytes":134217728}}"#.to_owned())]
                .into(),
            containers_statuses: vec![v1::ContainerStatus {
                id: "c1".into(),
                metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 2 }),
                state: v1::ContainerState::ContainerExited.into(),
                exit_code: 137,
                reason: "OOMKilled".into(),
                ..Default::default()
            }],
            timestamp: 0,
        }
    }

    fn listed() -> Pod {
        let status = NodeStatus { in_vms: Some(["aa1".to_owned()].into()), ..NodeStatus::default() };
        let containers = vec![made::container("c1", "aa1", "app", v1::ContainerState::ContainerRunning)];
        listing(vec![made::pod("aa1", "shop", "web", true)], containers, &status).remove(0)
    }

    #[test]
    fn a_pods_page_has_all_that_is_said_of_it_and_its_containers() {
        let page = page::render(entries(answer(), &listed()).iter());
        for line in [
            "kind: pod\n",
            "name: web\n",
            "state: ready\n",
            "createdAt: 2023-11-14T22:13:20.000Z\n",
            "runtime: vm\n",
            "addresses: 10.0.0.2, fd00::2\n",
            "  network: pod\n",
            "  note: a\\u{1b}[2J\\nb\n",
            "  unclean: a disk\n",
            "    memory_bytes: 134217728 (128MiB)\n",
            "    reason: OOMKilled\n",
            "    exitCode: 137\n",
        ] {
            assert!(page.contains(line), "{line:?}: {page}");
        }
    }

    #[test]
    fn a_runtime_that_says_nothing_of_containers_has_them_from_the_list() {
        let answer = v1::PodSandboxStatusResponse { containers_statuses: Vec::new(), ..answer() };
        let json = entries(answer, &listed()).into_json();
        assert_eq!(
            (&json["containers"][0]["name"], &json["containers"][0]["state"]),
            (&json!("app"), &json!("running"))
        );
    }

    #[test]
    fn an_empty_answer_is_no_error() {
        let json = entries(v1::PodSandboxStatusResponse::default(), &listed()).into_json();
        assert_eq!((&json["addresses"], &json["namespaces"]), (&json!([]), &Value::Null));
    }
}
