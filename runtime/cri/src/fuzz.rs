//! Entry points for `tests/fuzz`: a request's bytes through all steps before any action. Not for other
//! callers. The return value only says whether the request was accepted.

use prost::Message;
use proto_cri::v1;
use runtime_spec::{ContainerPlan, GuestPaths, HandlerConfig, ImageConfig, PodSpec, VmBounds};

use crate::convert;

pub(crate) const PATHS: GuestPaths = GuestPaths {
    resolv_conf: "/r",
    hosts: "/h",
    hostname: "/n",
    shm: "/s",
    pid_namespace: "/p",
    cgroup_parent: "/c",
    shared: "/d",
    image_volumes: "/i",
    guest_volumes: "/w",
    host_sockets: "/k",
    declared_volumes: "/v",
};

/// RunPodSandbox: decode, convert, check, size.
pub fn run_pod_sandbox(bytes: &[u8]) -> bool {
    pod(bytes).is_some()
}

/// CreateContainer in the first request's pod, without the edits of CDI devices: decode, convert, check,
/// resolve for the guest.
pub fn create_container(pod_bytes: &[u8], bytes: &[u8]) -> bool {
    let pod = pod(pod_bytes).unwrap_or_default();
    let Ok(request) = v1::CreateContainerRequest::decode(bytes) else { return false };
    let Some(config) = request.config else { return false };
    if convert::cdi::cdi_devices(&config).is_err() {
        return false;
    }
    let Ok(container) = convert::container_spec(config) else { return false };
    match ContainerPlan::resolve(&pod, &container, &ImageConfig::default(), "c", &PATHS) {
        Ok(plan) => {
            // The agent receives JSON for any request.
            serde_json::to_vec(&plan.oci).expect("an OCI spec is JSON");
            true
        }
        Err(_) => false,
    }
}

fn pod(bytes: &[u8]) -> Option<PodSpec> {
    let request = v1::RunPodSandboxRequest::decode(bytes).ok()?;
    let spec = convert::pod_spec(request.config?, request.runtime_handler).ok()?;
    spec.check().ok()?;
    let bounds = VmBounds::of(&spec, &HandlerConfig::default()).ok()?;
    for size in [bounds.boot, bounds.most] {
        assert!((1..=64).contains(&size.vcpus) && size.memory_bytes.is_multiple_of(2 << 20));
    }
    Some(spec)
}
