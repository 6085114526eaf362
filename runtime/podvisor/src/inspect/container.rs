//! Entries for a container, from ContainerStatus. Pure.

use proto_cri::v1;
use serde_json::{Value, json};

use crate::listing::State;
use crate::show::entries::{Entries, info, map, mappings, time, word};

/// The entries of a container.
pub(super) fn entries(answer: v1::ContainerStatusResponse) -> Entries {
    let status = answer.status.unwrap_or_default();
    Entries::default().with("kind", "container").joined(of_status(status)).with("info", info(answer.info))
}

/// The entries of a status alone, also used for the containers in a pod's answer.
pub(super) fn of_status(status: v1::ContainerStatus) -> Entries {
    let state = State::of(status.state());
    let stop_signal = word(status.stop_signal().as_str_name(), "");
    let v1::ContainerMetadata { name, attempt } = status.metadata.unwrap_or_default();
    let v1::ImageSpec { image, user_specified_image, .. } = status.image.unwrap_or_default();
    let exit_code = (state == State::Exited).then_some(status.exit_code);
    Entries::default()
        .with("id", status.id)
        .with("name", name)
        .with("attempt", attempt)
        .with("state", json!(state))
        .with("reason", status.reason)
        .with("message", status.message)
        .with("exitCode", exit_code)
        .with("createdAt", time(status.created_at))
        .with("startedAt", time(status.started_at))
        .with("finishedAt", time(status.finished_at))
        .with("image", if user_specified_image.is_empty() { image } else { user_specified_image })
        .with("imageRef", status.image_ref)
        .with("imageId", status.image_id)
        .with("user", user(status.user))
        .with("stopSignal", stop_signal)
        .with("logPath", status.log_path)
        .with("resources", resources(status.resources))
        .with("mounts", status.mounts.iter().map(mount_value).collect::<Vec<_>>())
        .with("labels", map(status.labels))
        .with("annotations", map(status.annotations))
}

fn user(user: Option<v1::ContainerUser>) -> Value {
    let Some(user) = user.and_then(|user| user.linux) else { return Value::Null };
    json!({ "uid": user.uid, "gid": user.gid, "supplementalGroups": user.supplemental_groups })
}

fn resources(resources: Option<v1::ContainerResources>) -> Value {
    let Some(linux) = resources.and_then(|resources| resources.linux) else { return Value::Null };
    let hugepages = linux.hugepage_limits.iter().map(|limit| (limit.page_size.clone(), json!(limit.limit)));
    json!({
        "cpuPeriod": linux.cpu_period,
        "cpuQuota": linux.cpu_quota,
        "cpuShares": linux.cpu_shares,
        "cpusetCpus": linux.cpuset_cpus,
        "cpusetMems": linux.cpuset_mems,
        "memoryLimitBytes": linux.memory_limit_in_bytes,
        "memorySwapLimitBytes": linux.memory_swap_limit_in_bytes,
        "oomScoreAdj": linux.oom_score_adj,
        "hugepageLimits": hugepages.collect::<serde_json::Map<_, _>>(),
        "unified": linux.unified,
    })
}

fn mount_value(mount: &v1::Mount) -> Value {
    json!({
        "containerPath": mount.container_path,
        "hostPath": mount.host_path,
        "image": mount.image.as_ref().map(|image| &image.image),
        "imageSubPath": mount.image_sub_path,
        "readonly": mount.readonly,
        "recursiveReadOnly": mount.recursive_read_only,
        "propagation": word(mount.propagation().as_str_name(), "PROPAGATION_"),
        "uidMappings": mappings(&mount.uid_mappings),
        "gidMappings": mappings(&mount.gid_mappings),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::page;

    fn status() -> v1::ContainerStatus {
        v1::ContainerStatus {
            id: "c1".into(),
            metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 1 }),
            state: v1::ContainerState::ContainerUnknown.into(),
            message: "the daemon ended while\x07 it started the container".into(),
            image: Some(v1::ImageSpec {
                image: "sha256:aa".into(),
                user_specified_image: "busybox:1".into(),
                ..Default::default()
            }),
            resources: Some(v1::ContainerResources {
                linux: Some(v1::LinuxContainerResources {
                    memory_limit_in_bytes: 64 << 20,
                    ..Default::default()
                }),
                windows: None,
            }),
            mounts: vec![v1::Mount {
                container_path: "/data".into(),
                host_path: "/srv".into(),
                uid_mappings: vec![v1::IdMapping { host_id: 100_000, container_id: 0, length: 65_536 }],
                ..Default::default()
            }],
            user: Some(v1::ContainerUser {
                linux: Some(v1::LinuxContainerUser { uid: 1000, gid: 1000, supplemental_groups: vec![7, 8] }),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_containers_page_says_why_its_state_is_unknown_and_what_it_has() {
        let info = [("info".to_owned(), r#"{"sandboxID":"p1","spec":{"image":"x"}}"#.to_owned())].into();
        let answer = v1::ContainerStatusResponse { status: Some(status()), info };
        let page = page::render(entries(answer).iter());
        for line in [
            "kind: container\n",
            "state: unknown\n",
            "message: the daemon ended while\\u{7} it started the container\n",
            "image: busybox:1\n",
            "  memoryLimitBytes: 67108864 (64MiB)\n",
            "    hostPath: /srv\n",
            "    uidMappings: 0 100000 65536\n",
            "  supplementalGroups: 7, 8\n",
            "  sandboxID: p1\n",
        ] {
            assert!(page.contains(line), "{line:?}: {page}");
        }
        assert!(!page.contains("exitCode") && !page.contains("finishedAt"), "{page}");
    }

    #[test]
    fn an_exit_code_of_zero_is_said_where_there_was_an_exit() {
        let ended = v1::ContainerStatus { state: v1::ContainerState::ContainerExited.into(), ..status() };
        assert_eq!(of_status(ended).into_json()["exitCode"], 0);
        assert_eq!(of_status(status()).into_json()["exitCode"], Value::Null);
    }
}
