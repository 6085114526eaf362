//! PodSandboxStatus: NotFound for an unknown id. A verbose answer adds the VM, its cost, and the measured
//! phases of the pod's start.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_cri::v1;
use runtime_pod::{Installed, Part, PodView, Pods};
use serde_json::json;

use crate::convert::{container_status, pod_status};
use crate::error::Failure;
use crate::runtime::now_ns;
use crate::subject;

pub(crate) async fn status(
    pods: &Pods,
    request: v1::PodSandboxStatusRequest,
) -> Result<v1::PodSandboxStatusResponse, Failure> {
    let id = request.pod_sandbox_id;
    subject::pod(pods, &id);
    let Some((pod, containers)) = pods.pod_with_containers(&id) else {
        return Err(Failure::NotFound { what: "pod sandbox", id });
    };
    let info = if request.verbose {
        BTreeMap::from([("info".to_owned(), info(pods, &pod).await.to_string())])
    } else {
        BTreeMap::new()
    };
    Ok(v1::PodSandboxStatusResponse {
        containers_statuses: containers.iter().map(|container| container_status(container)).collect(),
        status: Some(pod_status(&pod)),
        info,
        timestamp: now_ns(),
    })
}

/// Details for people and for measuring tools. An unknown value (of a VM that is gone) is null.
async fn info(pods: &Pods, pod: &PodView) -> serde_json::Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let phases: Vec<_> = pods
        .phases(&pod.id)
        .unwrap_or_default()
        .iter()
        .map(|phase| json!({ "name": phase.name, "start_ms": ms(phase.start), "duration_ms": ms(phase.duration) }))
        .collect();
    let report = pods.vm_stats(&pod.id).await.ok();
    let installed = pods.installed().await.ok();
    json!({
        "netns": pod.netns,
        "message": pod.message,
        "unclean": pod.unclean,
        "settings_passed_by": pod.settings_passed_by,
        "full_disks": pod.full_disks,
        "phases": phases,
        "vm": pod.ledger.size,
        "resources": pod.ledger,
        "versions": versions(pod, installed.as_ref()),
        "vmm": report.as_ref().map(|report| json!({
            "pid": report.vmm_pid,
            "exits": report.stats.exits,
            "devices": report.stats.devices,
        })),
        "clock": report.as_ref().and_then(|report| report.clock),
        "guest": report.and_then(|report| report.guest).map(|guest| json!({
            "total_bytes": guest.total,
            "available_bytes": guest.available,
            "used_bytes": guest.total.saturating_sub(guest.available),
            "agent_resident_bytes": guest.agent_resident,
            "processes": guest.processes,
        })),
    })
}

/// Versions of the pod's VM, part by part. A part is null in a pod started by an earlier release.
fn versions(pod: &PodView, installed: Option<&Installed>) -> serde_json::Value {
    let part = |part: Part| {
        let version = pod.versions.as_ref()?.part(part);
        let is_installed = installed.map(|installed| installed.has(part, pod.versions.as_ref()));
        Some(json!({ "release": version.release, "build": version.build, "installed": is_installed }))
    };
    Part::ALL.into_iter().map(|name| (name.name().to_owned(), json!(part(name)))).collect()
}

#[cfg(test)]
mod tests {
    use runtime_pod::{PartVersion, VmVersions};

    use super::*;

    #[test]
    fn versions_are_shown_part_by_part_and_unknown_ones_as_null() {
        let vmm = PartVersion { release: "0.1.0".into(), build: Some("ab12".into()) };
        let known = VmVersions { vmm, ..VmVersions::default() };
        let pod = PodView { versions: Some(known), ..PodView::default() };
        let shown = versions(&pod, Some(&Installed::default()));
        assert_eq!(shown["vmm"], json!({ "release": "0.1.0", "build": "ab12", "installed": false }));
        assert_eq!(shown["kernel"]["build"], json!(null));
        assert_eq!(versions(&pod, None)["vmm"]["installed"], json!(null));
        let unknown = versions(&PodView::default(), Some(&Installed::default()));
        assert_eq!(unknown, json!({ "vmm": null, "kernel": null, "agent": null }));
    }
}
