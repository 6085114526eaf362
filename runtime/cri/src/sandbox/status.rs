//! PodSandboxStatus: NotFound for an unknown id. A verbose answer adds the VM, its cost, and the measured
//! phases of the pod's start.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_cri::v1;
use runtime_pod::{PodView, Pods};
use serde_json::json;

use crate::convert::{container_status, pod_status};
use crate::error::Failure;
use crate::runtime::now_ns;

pub(crate) async fn status(
    pods: &Pods,
    request: v1::PodSandboxStatusRequest,
) -> Result<v1::PodSandboxStatusResponse, Failure> {
    let id = request.pod_sandbox_id;
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

/// Details for people and for tools that measure. An unknown value (of a VM that is gone) is null.
async fn info(pods: &Pods, pod: &PodView) -> serde_json::Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let phases: Vec<_> = pods
        .phases(&pod.id)
        .unwrap_or_default()
        .iter()
        .map(|phase| json!({ "name": phase.name, "start_ms": ms(phase.start), "duration_ms": ms(phase.duration) }))
        .collect();
    let report = pods.vm_stats(&pod.id).await.ok();
    json!({
        "netns": pod.netns,
        "message": pod.message,
        "unclean": pod.unclean,
        "phases": phases,
        "vm": pod.ledger.size,
        "resources": pod.ledger,
        "vmm": report.as_ref().map(|report| json!({ "pid": report.vmm_pid, "exits": report.stats.exits })),
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
