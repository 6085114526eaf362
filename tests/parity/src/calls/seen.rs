//! Answers as lines to compare. Ids become the script's names, and times become whether they are set. Pure.

use std::collections::BTreeMap;

use proto_cri::v1;
use tonic::{Code, Status};

use super::names::Names;

/// How a call was refused, as far as a client may depend on it. Runtimes choose other codes freely.
pub(super) fn refusal(status: &Status) -> &'static str {
    match status.code() {
        Code::NotFound => "not found",
        Code::DeadlineExceeded => "out of time",
        Code::Unimplemented => "not implemented",
        _ => "refused",
    }
}

fn is_set(time: i64) -> &'static str {
    if time > 0 { "set" } else { "none" }
}

fn map(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(" ")
}

fn metadata(metadata: Option<&v1::ContainerMetadata>) -> String {
    metadata.map_or_else(|| "none".into(), |found| format!("{} {}", found.name, found.attempt))
}

fn pod_metadata(metadata: Option<&v1::PodSandboxMetadata>) -> String {
    // The uid has the runtime's name in it.
    metadata.map_or_else(
        || "none".into(),
        |found| format!("{}/{} {}", found.namespace, found.name, found.attempt),
    )
}

fn image(spec: Option<&v1::ImageSpec>, names: &Names) -> String {
    spec.map_or_else(|| "none".into(), |spec| names.image.shown(&spec.image))
}

/// A container's status. `newest` adds fields that containerd 1.6 does not know.
pub(super) fn container(status: &v1::ContainerStatus, names: &Names, newest: bool) -> Vec<String> {
    let mut lines = vec![
        format!("is {}", names.of(&status.id).unwrap_or("unknown")),
        format!("metadata {}", metadata(status.metadata.as_ref())),
        format!("state {}", status.state().as_str_name()),
        format!("created {}", is_set(status.created_at)),
        format!("started {}", is_set(status.started_at)),
        format!("finished {}", is_set(status.finished_at)),
        format!("exit {} {:?}", status.exit_code, status.reason),
        format!("image {}", image(status.image.as_ref(), names)),
        format!("image ref {}", names.image.shown(&status.image_ref)),
        format!("labels {}", map(&status.labels)),
        format!("annotations {}", map(&status.annotations)),
        format!("log {}", status.log_path.rsplit('/').next().unwrap_or_default()),
    ];
    lines.extend(status.mounts.iter().map(|mount| {
        let (to, read_only, propagation) =
            (&mount.container_path, mount.readonly, mount.propagation().as_str_name());
        format!("mount {to} read-only {read_only} {propagation}")
    }));
    if newest {
        lines.push(format!("image id {}", names.image.shown(&status.image_id)));
        let linux = status.user.as_ref().and_then(|user| user.linux.as_ref());
        lines.push(format!("user {linux:?}"));
        lines.push(format!("stop signal {}", status.stop_signal().as_str_name()));
        let linux = status.resources.as_ref().and_then(|resources| resources.linux.as_ref());
        let memory = linux.map(|linux| (linux.memory_limit_in_bytes, linux.cpu_shares, linux.cpu_quota));
        lines.push(format!("memory, shares, quota {memory:?}"));
    }
    lines
}

/// A container of a list, in one line.
pub(super) fn listed(container: &v1::Container, names: &Names) -> Option<String> {
    let name = names.of(&container.id)?;
    Some(format!(
        "{name} in {} metadata {} {} created {} image {} ref {} labels {} annotations {}",
        names.of(&container.pod_sandbox_id).unwrap_or("unknown"),
        metadata(container.metadata.as_ref()),
        container.state().as_str_name(),
        is_set(container.created_at),
        image(container.image.as_ref(), names),
        names.image.shown(&container.image_ref),
        map(&container.labels),
        map(&container.annotations)
    ))
}

/// A pod's status.
pub(super) fn pod(status: &v1::PodSandboxStatus, names: &Names) -> Vec<String> {
    let network = status.network.as_ref();
    let namespaces = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref());
    let options = namespaces.and_then(|namespaces| namespaces.options.as_ref());
    let modes = options
        .map(|found| [found.network(), found.pid(), found.ipc()].map(|mode| mode.as_str_name()).join(" "));
    vec![
        format!("is {}", names.of(&status.id).unwrap_or("unknown")),
        format!("metadata {}", pod_metadata(status.metadata.as_ref())),
        format!("state {}", status.state().as_str_name()),
        format!("created {}", is_set(status.created_at)),
        format!("address {}", network.is_some_and(|network| !network.ip.is_empty())),
        format!("further addresses {}", network.map_or(0, |network| network.additional_ips.len())),
        format!("network, process and ipc namespaces {}", modes.unwrap_or_default()),
        format!("labels {}", map(&status.labels)),
        format!("annotations {}", map(&status.annotations)),
        format!("handler {:?}", status.runtime_handler),
    ]
}

/// A pod of a list, in one line.
pub(super) fn listed_pod(pod: &v1::PodSandbox, names: &Names) -> Option<String> {
    let name = names.of(&pod.id)?;
    Some(format!(
        "{name} metadata {} {} created {} labels {} annotations {} handler {:?}",
        pod_metadata(pod.metadata.as_ref()),
        pod.state().as_str_name(),
        is_set(pod.created_at),
        map(&pod.labels),
        map(&pod.annotations),
        pod.runtime_handler
    ))
}

/// A container's statistics: which there are.
pub(super) fn stats(stats: &v1::ContainerStats, names: &Names) -> Option<String> {
    let attributes = stats.attributes.as_ref()?;
    let name = names.of(&attributes.id)?;
    let (cpu, memory, layer) = (stats.cpu.as_ref(), stats.memory.as_ref(), stats.writable_layer.as_ref());
    let mut there = Vec::new();
    let mut note = |what: &'static str, is_there: bool| {
        if is_there {
            there.push(what);
        }
    };
    note("cpu", cpu.is_some_and(|cpu| cpu.usage_core_nano_seconds.is_some() && cpu.timestamp > 0));
    note(
        "working set",
        memory.is_some_and(|memory| memory.working_set_bytes.is_some() && memory.timestamp > 0),
    );
    note("memory", memory.is_some_and(|memory| memory.usage_bytes.is_some()));
    note("rss", memory.is_some_and(|memory| memory.rss_bytes.is_some()));
    note(
        "faults",
        memory.is_some_and(|memory| memory.page_faults.is_some() && memory.major_page_faults.is_some()),
    );
    // containerd measures a layer every ten seconds, and has no size of it before.
    note("inodes", layer.is_some_and(|layer| layer.inodes_used.is_some()));
    note(
        "file system",
        layer.and_then(|layer| layer.fs_id.as_ref()).is_some_and(|fs| !fs.mountpoint.is_empty()),
    );
    Some(format!(
        "{name} metadata {} labels {} annotations {}: {}",
        metadata(attributes.metadata.as_ref()),
        map(&attributes.labels),
        map(&attributes.annotations),
        there.join(", ")
    ))
}

/// A pod's statistics: which there are, and its containers.
pub(super) fn pod_stats(stats: &v1::PodSandboxStats, names: &Names) -> Option<String> {
    let attributes = stats.attributes.as_ref()?;
    let name = names.of(&attributes.id)?;
    let linux = stats.linux.as_ref();
    let containers = linux.map_or(&[][..], |linux| &linux.containers);
    let ids = containers.iter().filter_map(|one| names.of(&one.attributes.as_ref()?.id));
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    Some(format!(
        "{name} metadata {} labels {}: cpu {} memory {} network {} processes {} containers {}",
        pod_metadata(attributes.metadata.as_ref()),
        map(&attributes.labels),
        linux.is_some_and(|linux| linux.cpu.is_some()),
        linux.is_some_and(|linux| linux.memory.is_some()),
        linux
            .and_then(|linux| linux.network.as_ref())
            .is_some_and(|network| network.default_interface.is_some()),
        linux.and_then(|linux| linux.process.as_ref()).is_some_and(|process| process.process_count.is_some()),
        ids.join(" ")
    ))
}

/// An image, in one line.
pub(super) fn listed_image(image: &v1::Image, names: &Names) -> Option<String> {
    if image.id != names.image.id {
        return None;
    }
    let shown = |all: &[String]| {
        let mut shown: Vec<String> = all.iter().map(|name| names.image.shown(name)).collect();
        // Cases share the image's content under other tags.
        shown.retain(|name| name.starts_with('@'));
        shown.join(" ")
    };
    Some(format!(
        "@id tags {} digests {} size {} uid {:?} user {:?} pinned {}",
        shown(&image.repo_tags),
        shown(&image.repo_digests),
        image.size > 0,
        image.uid.as_ref().map(|uid| uid.value),
        image.username,
        image.pinned
    ))
}
