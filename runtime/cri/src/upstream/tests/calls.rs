//! Calls about one pod, and about the node.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use runtime_traces::recorder::Recorder;
use tonic::{Code, Request, Status};

use super::super::link::unary;
use super::super::{UnnamedPods, UpstreamConfig, UpstreamError};
use super::world::{RUNTIME, World, pods, run};
use crate::runtime::status::CgroupDriver;
use crate::traced::Traced;

#[tokio::test]
async fn a_pod_goes_where_its_handler_leads() {
    let world = World::start().await;
    world.ours.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "vm1".into() });
    world.theirs.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "c1".into() });
    for (handler, node_network, expected) in [
        ("", false, "vm1"),
        ("vm", false, "vm1"),
        ("runc", false, "c1"),
        ("other", true, "c1"),
        ("", true, "c1"),
    ] {
        let answer: v1::RunPodSandboxResponse =
            world.runtime("RunPodSandbox", &run(handler, node_network)).await.unwrap();
        assert_eq!(answer.pod_sandbox_id, expected, "{handler:?}");
    }
    let asked = world.theirs.asked("RunPodSandbox");
    assert_eq!(asked[1], run("other", true).encode_to_vec(), "as it came in");
    let refused = world.runtime::<v1::RunPodSandboxResponse>("RunPodSandbox", &run("vm", true)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("\"runc\" or \"other\""), "{refused}");
}

#[tokio::test]
async fn a_call_about_a_pod_goes_to_its_owner_as_the_bytes_it_came_in() {
    let world = World::start().await;
    world.ours.answers("StopPodSandbox", &());
    world.theirs.answers("StopPodSandbox", &());
    let stop = |id: &str| v1::StopPodSandboxRequest { pod_sandbox_id: id.into() };
    for id in ["vm1", "v", "c1", "nobody's"] {
        world.runtime::<()>("StopPodSandbox", &stop(id)).await.unwrap();
    }
    assert_eq!(
        (world.ours.asked("StopPodSandbox").len(), world.theirs.asked("StopPodSandbox").len()),
        (2, 2)
    );
    // A field of a later version.
    let mut later = stop("c1").encode_to_vec();
    later.extend_from_slice(&[0xf8, 0x06, 7]);
    let request = Request::new(Bytes::from(later.clone()));
    unary(world.layer.clone(), "/runtime.v1alpha2.RuntimeService/StopPodSandbox", request).await.unwrap();
    assert_eq!(world.theirs.asked("StopPodSandbox").last().unwrap()[..], later[..]);
    world.theirs.refuses("StopPodSandbox", Status::failed_precondition("busy"));
    let refused = world.runtime::<()>("StopPodSandbox", &stop("c1")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "busy"));
    assert!(world.upstream().link.is_up(), "an error is an answer");
}

#[tokio::test]
async fn an_id_that_neither_side_has_gets_the_answer_of_the_side_of_unnamed_pods() {
    let world = World::start().await;
    world.ours.answers("StopPodSandbox", &());
    world.ours.refuses("PodSandboxStatus", Status::not_found("ours have none"));
    for rpc in ["StopPodSandbox", "PodSandboxStatus"] {
        world.theirs.refuses(rpc, Status::not_found("theirs have none"));
    }
    let stop = |id: &str| v1::StopPodSandboxRequest { pod_sandbox_id: id.into() };
    world.runtime::<()>("StopPodSandbox", &stop("nobody's")).await.unwrap();
    assert_eq!(world.ours.asked("StopPodSandbox"), world.theirs.asked("StopPodSandbox"));
    let status = v1::PodSandboxStatusRequest { pod_sandbox_id: "nobody's".into(), verbose: false };
    let refused =
        world.runtime::<v1::PodSandboxStatusResponse>("PodSandboxStatus", &status).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "ours have none"));
    // A pod listed by the upstream is the upstream's to answer for.
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.pods().await;
    let refused = world.runtime::<()>("StopPodSandbox", &stop("c1")).await.unwrap_err();
    assert_eq!(refused.message(), "theirs have none");
}

#[tokio::test]
async fn a_beginning_of_several_ids_is_refused() {
    let world = World::start().await;
    world.theirs.answers("ListPodSandbox", &pods(&["vx"]));
    world.pods().await;
    let id = v1::StopPodSandboxRequest { pod_sandbox_id: "v".into() };
    let refused = world.runtime::<()>("StopPodSandbox", &id).await.unwrap_err();
    assert!(refused.message().contains("vm1") && refused.message().contains("vx"), "{refused}");
}

#[tokio::test]
async fn a_configuration_reaches_an_upstream_that_was_down() {
    let mut world = World::without_upstream();
    world.ours.answers("UpdateRuntimeConfig", &());
    world.theirs.answers("UpdateRuntimeConfig", &());
    let config =
        v1::RuntimeConfig { network_config: Some(v1::NetworkConfig { pod_cidr: "10.1.0.0/24".into() }) };
    let update = v1::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
    world.runtime::<()>("UpdateRuntimeConfig", &update).await.unwrap();
    assert!(world.theirs.asked("UpdateRuntimeConfig").is_empty());
    world.serve();
    world.is_up(true).await;
    assert_eq!(world.theirs.asked("UpdateRuntimeConfig"), [Bytes::from(update.encode_to_vec())]);
}

#[tokio::test]
async fn a_configuration_reaches_each_side_whether_the_other_takes_it_or_not() {
    let world = World::start().await;
    let update = v1::UpdateRuntimeConfigRequest::default();
    let configure = async || world.runtime::<()>("UpdateRuntimeConfig", &update).await;
    world.ours.refuses("UpdateRuntimeConfig", Status::internal("our disk is full"));
    world.theirs.answers("UpdateRuntimeConfig", &());
    assert_eq!(configure().await.unwrap_err().message(), "our disk is full");
    assert_eq!(world.theirs.asked("UpdateRuntimeConfig").len(), 1);
    world.theirs.refuses("UpdateRuntimeConfig", Status::internal("theirs is full"));
    assert_eq!(configure().await.unwrap_err().message(), "our disk is full", "ours is the first");
    world.ours.answers("UpdateRuntimeConfig", &());
    assert_eq!(configure().await.unwrap_err().message(), "theirs is full");
    assert_eq!(world.ours.asked("UpdateRuntimeConfig").len(), 3);
}

#[tokio::test]
async fn a_status_has_both_sides_handlers_and_says_that_the_upstream_is_gone() {
    let mut world = World::start().await;
    let handler = |name: &str| v1::RuntimeHandler { name: name.into(), features: Some(Default::default()) };
    world.ours.answers(
        "Status",
        &v1::StatusResponse { runtime_handlers: vec![handler("vm")], ..Default::default() },
    );
    world.theirs.answers("Status", &v1::StatusResponse::default());
    let status = async |world: &World| world.runtime::<v1::StatusResponse>("Status", &()).await.unwrap();
    let answer = status(&world).await;
    assert_eq!(answer.runtime_handlers, ["vm", "runc", "other"].map(handler));
    assert!(answer.status.unwrap().conditions[0].status);
    world.kill();
    let answer = status(&world).await;
    assert!(!answer.status.as_ref().unwrap().conditions[0].status);
    let again = status(&world).await;
    let said = &again.status.unwrap().conditions[0].message;
    assert_eq!(said.matches("does not answer").count(), 1, "{said}");
    assert_eq!(answer.runtime_handlers.len(), 3);
}

/// Stops a pod of the upstream, for a tracing caller.
async fn stop_with_parent(world: &World, parent: &str) {
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: "c1".into() };
    let mut request = Request::new(Bytes::from(stop.encode_to_vec()));
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    let path = format!("{RUNTIME}StopPodSandbox");
    unary(Traced(world.layer.clone()), &path, request).await.unwrap();
}

#[tokio::test]
async fn a_call_that_is_handed_on_has_our_span_as_its_parent() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let world = World::start().await;
    world.theirs.answers("StopPodSandbox", &());
    stop_with_parent(&world, PARENT).await;
    assert_eq!(world.theirs.parents(), [PARENT], "without traces as it came");
    let (recorder, _guard) = Recorder::begin();
    stop_with_parent(&world, PARENT).await;
    let spans = recorder.spans();
    let call = spans.iter().find(|span| span.is_call).unwrap();
    let handed_on = spans.iter().find(|span| !span.is_call).unwrap();
    assert_eq!(format!("00-{}-{}-01", call.trace, call.parent), PARENT);
    assert_eq!(handed_on.parent, call.id);
    assert_eq!(call.attributes["podvisor.pod.id"], "c1");
    assert_eq!(world.theirs.parents()[1], format!("00-{}-{}-01", call.trace, handed_on.id));
}

#[tokio::test]
async fn what_the_upstream_says_is_in_the_answer_and_in_no_span() {
    let world = World::start().await;
    let refusal = Status::unknown("exec: \"/app --token=s3cret\": no such file or directory");
    world.theirs.refuses("StopPodSandbox", refusal);
    let (recorder, _guard) = Recorder::begin();
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: "c1".into() };
    let request = Request::new(Bytes::from(stop.encode_to_vec()));
    let path = format!("{RUNTIME}StopPodSandbox");
    let answer = unary(Traced(world.layer.clone()), &path, request).await.unwrap_err();
    assert!(answer.message().contains("s3cret"), "{answer}");
    let spans = recorder.spans();
    assert_eq!(spans.len(), 2);
    for span in spans {
        assert!(span.failure.unwrap().contains("the upstream runtime refused it"));
    }
}

fn config(driver: v1::CgroupDriver) -> v1::RuntimeConfigResponse {
    v1::RuntimeConfigResponse { linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }) }
}

#[tokio::test]
async fn the_kubelet_gets_the_upstreams_cgroup_driver_or_keeps_its_own() {
    let mut world = World::start().await;
    let (ours, theirs) = (config(v1::CgroupDriver::Systemd), config(v1::CgroupDriver::Cgroupfs));
    let none = v1::RuntimeConfigResponse::default();
    world.ours.answers("RuntimeConfig", &ours);
    let asked = async |world: &World| {
        world.runtime::<v1::RuntimeConfigResponse>("RuntimeConfig", &v1::RuntimeConfigRequest {}).await
    };
    assert_eq!(asked(&world).await.unwrap(), none, "it does not know the call");
    world.theirs.answers("RuntimeConfig", &none);
    assert_eq!(asked(&world).await.unwrap(), none, "it names none");
    world.kill();
    let unknown = asked(&world).await.unwrap_err();
    assert!(unknown.code() == Code::Unavailable && unknown.message().contains("cgroup driver"), "{unknown}");
    world.theirs.answers("RuntimeConfig", &theirs);
    world.serve();
    world.is_up(true).await;
    assert_eq!(asked(&world).await.unwrap(), theirs);
    world.kill();
    assert_eq!(asked(&world).await.unwrap(), theirs, "it is down, and has not changed");
    // Its containers would be outside of the cgroups of the kubelet's pods.
    world.theirs.answers("RuntimeConfig", &ours);
    world.serve();
    let mut state = world.upstream().link.state();
    let is_of_drivers = |state: &Result<(), String>| state.as_ref().is_err_and(|why| why.contains("driver"));
    let why = state.wait_for(is_of_drivers).await.unwrap().clone().unwrap_err();
    assert_eq!(why, "its cgroup driver is systemd, and the kubelet uses cgroupfs: restart the kubelet");
    assert_eq!(asked(&world).await.unwrap(), ours, "the kubelet was restarted");
    world.is_up(true).await;
}

#[tokio::test]
async fn an_upstream_with_another_cgroup_driver_than_the_configured_one_is_not_used() {
    let world = World::start().await;
    world.theirs.answers("RuntimeConfig", &config(v1::CgroupDriver::Cgroupfs));
    let config = |driver| UpstreamConfig {
        socket: world.dir.path().join("upstream.sock"),
        handlers: Vec::new(),
        unnamed_pods: UnnamedPods::None,
        state_dir: world.dir.path().to_owned(),
        cgroup_driver: driver,
    };
    config(None).check().await.unwrap();
    config(Some(CgroupDriver::Cgroupfs)).check().await.unwrap();
    let error = config(Some(CgroupDriver::Systemd)).check().await.unwrap_err();
    assert!(matches!(error, UpstreamError::CgroupDriver { .. }), "it has a remedy of its own: {error}");
    let why = error.to_string();
    assert!(
        why.ends_with("its cgroup driver is cgroupfs, and cgroup.driver is systemd: give both the same"),
        "{why}"
    );
    // A daemon goes on without it, for the pods in VMs.
    config(Some(CgroupDriver::Systemd)).check_images().await.unwrap();
}

#[tokio::test]
async fn a_containerd_without_its_cri_plugin_is_found_by_a_check() {
    let world = World::start().await;
    let config = UpstreamConfig {
        socket: world.dir.path().join("upstream.sock"),
        handlers: Vec::new(),
        unnamed_pods: UnnamedPods::None,
        state_dir: world.dir.path().to_owned(),
        cgroup_driver: None,
    };
    config.check().await.unwrap();
    for rpc in ["Version", "ImageFsInfo", "RuntimeConfig"] {
        world.theirs.refuses(rpc, Status::unimplemented("unknown service runtime.v1.RuntimeService"));
    }
    let error = config.check().await.unwrap_err();
    assert!(matches!(error, UpstreamError::NoCri { .. }), "{error}");
    config.check_images().await.expect("the daemon serves pods in VMs all the same");
}
