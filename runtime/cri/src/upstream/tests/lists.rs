//! Lists, streams and events of both sides.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Code, Request, Status};

use super::super::UnnamedPods;
use super::super::link::{streaming, unary};
use super::world::{IMAGE, RUNTIME, World, image, pods, run, upstream, upstream_of};
use futures::StreamExt;
use std::time::Duration;

#[tokio::test]
async fn lists_have_both_sides_and_what_an_upstream_had_last_while_it_is_gone() {
    let mut world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1", "c2"]));
    assert_eq!(world.pods().await, ["vm1", "c1", "c2"]);
    world.kill();
    assert_eq!(world.pods().await, ["vm1", "c1", "c2"]);
    world.is_up(false).await;
    let id = |id: &str| v1::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: false };
    world.ours.refuses("PodSandboxStatus", Status::not_found("ours"));
    let status =
        world.runtime::<v1::PodSandboxStatusResponse>("PodSandboxStatus", &id("c1")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let unknown =
        world.runtime::<v1::PodSandboxStatusResponse>("PodSandboxStatus", &id("x")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "the upstream may have it");
    world.ours.answers("StopPodSandbox", &());
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: "x".into() };
    let unknown = world.runtime::<()>("StopPodSandbox", &stop).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "nobody knows that it is stopped");
    // A filter applies to remembered lists, too.
    let filter = v1::PodSandboxFilter { id: "c2".into(), ..Default::default() };
    let list: v1::ListPodSandboxResponse =
        world.runtime("ListPodSandbox", &v1::ListPodSandboxRequest { filter: Some(filter) }).await.unwrap();
    assert_eq!(list.items.len(), 2, "ours does not filter, and c2 passes");
    world.theirs.answers("ListPodSandbox", &pods(&["c2"]));
    world.serve();
    world.is_up(true).await;
    assert_eq!(world.pods().await, ["vm1", "c2"]);
}

#[tokio::test]
async fn pods_are_remembered_over_a_restart_of_the_daemon() {
    let mut world = World::start().await;
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    assert_eq!(world.pods().await, ["c1"]);
    let written = world.dir.path().join("upstream/pods");
    while std::fs::read(&written).unwrap_or_default().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.kill();
    world.layer.upstream = Some(upstream(world.dir.path()));
    assert_eq!(world.pods().await, ["c1"]);
}

#[tokio::test]
async fn an_upstream_that_hangs_is_down_and_ours_go_on() {
    let world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.pods().await;
    world.theirs.hangs();
    tokio::time::pause();
    assert_eq!(world.pods().await, ["vm1", "c1"]);
    world.is_up(false).await;
}

#[tokio::test]
async fn an_upstream_that_answers_with_an_error_or_nonsense_is_up() {
    let world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.ours.answers("Status", &v1::StatusResponse::default());
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.pods().await;
    world.theirs.answers_nonsense("ListPodSandbox");
    assert_eq!(world.pods().await, ["vm1", "c1"]);
    for rpc in ["ListPodSandbox", "ListPodSandboxStats", "Status", "ImageFsInfo"] {
        world.theirs.refuses(rpc, Status::internal("a shim does not answer"));
    }
    world.ours.answers("ListPodSandboxStats", &());
    assert_eq!(world.pods().await, ["vm1", "c1"]);
    world.runtime::<()>("ListPodSandboxStats", &()).await.unwrap();
    let status: v1::StatusResponse = world.runtime("Status", &()).await.unwrap();
    assert_eq!(status.status.unwrap().conditions[0].message, "a shim does not answer");
    world.call::<()>(&format!("{IMAGE}ImageFsInfo"), &()).await.unwrap();
    assert!(world.upstream().link.is_up());
}

#[tokio::test]
async fn an_upstream_that_is_slow_at_statistics_is_asked_for_its_version_and_is_up() {
    let world = World::start().await;
    world.theirs.hangs_at("ListPodSandboxStats");
    let (upstream, looks) = (world.upstream(), world.theirs.asked("Version").len());
    let path = format!("{RUNTIME}ListPodSandboxStats");
    let asking = upstream.link.fetch_within(Duration::from_millis(20), &path, Request::new(Bytes::new()));
    assert_eq!(asking.await.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(upstream.link.is_up());
    let looked_at = async {
        while world.theirs.asked("Version").len() == looks {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looked_at).await.expect("its version is asked for");
    assert!(upstream.link.is_up());
}

#[tokio::test]
async fn an_upstream_that_lacks_a_list_comes_back_all_the_same() {
    let mut world = World::without_upstream();
    world.theirs.refuses("ListImages", Status::internal("a blob is missing"));
    world.serve();
    world.is_up(true).await;
}

#[tokio::test]
async fn what_answers_and_events_name_is_known_before_a_list_has_it() {
    let mut world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.ours.answers("GetContainerEvents", &());
    world.theirs.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "c1".into() });
    world.theirs.answers("CreateContainer", &v1::CreateContainerResponse { container_id: "a1".into() });
    let mut run = run("runc", false);
    run.config.get_or_insert_default().metadata =
        Some(v1::PodSandboxMetadata { name: "dns".into(), ..Default::default() });
    world.runtime::<v1::RunPodSandboxResponse>("RunPodSandbox", &run).await.unwrap();
    let create = v1::CreateContainerRequest { pod_sandbox_id: "c1".into(), ..Default::default() };
    world.runtime::<v1::CreateContainerResponse>("CreateContainer", &create).await.unwrap();
    let event = v1::ContainerEventResponse {
        container_id: "a2".into(),
        pod_sandbox_status: Some(v1::PodSandboxStatus { id: "c2".into(), ..Default::default() }),
        containers_statuses: vec![v1::ContainerStatus { id: "a2".into(), ..Default::default() }],
        ..Default::default()
    };
    world.theirs.answers("GetContainerEvents", &event);
    let path = format!("{RUNTIME}GetContainerEvents");
    let mut events = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
    while events.next().await.unwrap().is_ok() {}
    world.kill();
    assert_eq!(world.pods().await, ["vm1", "c1", "c2"]);
    assert_eq!(world.upstream().known.pods()[0].metadata, run.config.unwrap().metadata);
    let containers: v1::ListContainersResponse = world.runtime("ListContainers", &()).await.unwrap();
    let containers: Vec<_> =
        containers.containers.into_iter().map(|one| (one.id, one.pod_sandbox_id)).collect();
    assert_eq!(containers, [("a1", "c1"), ("a2", "c2")].map(|(id, pod)| (id.to_owned(), pod.to_owned())));
}

#[tokio::test]
async fn metrics_of_both_sides_have_one_descriptor_for_each_name() {
    let world = World::start().await;
    let describe = |labels: &[&str]| {
        let label_keys = labels.iter().map(ToString::to_string).collect();
        let cpu = v1::MetricDescriptor { name: "cpu".into(), help: String::new(), label_keys };
        v1::ListMetricDescriptorsResponse { descriptors: vec![cpu] }
    };
    let metrics = |values: &[&str]| {
        let label_values = values.iter().map(ToString::to_string).collect();
        let metrics = vec![v1::Metric { name: "cpu".into(), label_values, ..Default::default() }];
        let pod_metrics = vec![v1::PodSandboxMetrics { metrics, ..Default::default() }];
        v1::ListPodSandboxMetricsResponse { pod_metrics }
    };
    world.ours.answers("ListMetricDescriptors", &describe(&["pod", "id"]));
    world.theirs.answers("ListMetricDescriptors", &describe(&["id", "pod"]));
    world.ours.answers("ListPodSandboxMetrics", &metrics(&["web", "1"]));
    world.theirs.answers("ListPodSandboxMetrics", &metrics(&["2", "dns"]));
    world.ours.answers("StreamPodSandboxMetrics", &metrics(&["web", "1"]));
    world.theirs.answers("StreamPodSandboxMetrics", &metrics(&["2", "dns"]));
    let described: v1::ListMetricDescriptorsResponse =
        world.runtime("ListMetricDescriptors", &()).await.unwrap();
    assert_eq!(described, describe(&["pod", "id"]));
    let both = [metrics(&["web", "1"]).pod_metrics, metrics(&["dns", "2"]).pod_metrics].concat();
    let listed: v1::ListPodSandboxMetricsResponse =
        world.runtime("ListPodSandboxMetrics", &()).await.unwrap();
    assert_eq!(listed.pod_metrics, both);
    let path = format!("{RUNTIME}StreamPodSandboxMetrics");
    let pieces = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
    let pieces: Vec<_> = pieces.map(|piece| piece.unwrap()).collect().await;
    let streamed =
        pieces.into_iter().map(|piece| v1::StreamPodSandboxMetricsResponse::decode(piece).unwrap());
    assert_eq!(streamed.flat_map(|piece| piece.pod_sandbox_metrics).collect::<Vec<_>>(), both);
}

#[tokio::test]
async fn a_caller_that_waits_no_longer_says_nothing_of_the_upstream() {
    let world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.theirs.answers("StopPodSandbox", &v1::StopPodSandboxResponse::default());
    world.pods().await;
    world.theirs.hangs();
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: "c1".into() };
    let impatient = async |rpc: &str, message: Vec<u8>| {
        let mut request = Request::new(message.into());
        request.set_timeout(Duration::from_millis(20));
        unary(world.layer.clone(), &format!("{RUNTIME}{rpc}"), request).await
    };
    let late = impatient("StopPodSandbox", stop.encode_to_vec()).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    let list = impatient("ListPodSandbox", Vec::new()).await.unwrap();
    let list = v1::ListPodSandboxResponse::decode(list.into_inner()).unwrap();
    assert_eq!(list.items.len(), 2, "what the upstream had last is listed");
    assert!(world.upstream().link.is_up());
    world.theirs.goes_on();
    world.runtime::<v1::StopPodSandboxResponse>("StopPodSandbox", &stop).await.unwrap();
}

#[tokio::test]
async fn metrics_that_the_runtime_of_the_nodes_pods_lacks_are_not_there() {
    let mut world = World::start().await;
    world.layer.upstream = Some(upstream_of(world.dir.path(), UnnamedPods::All));
    world.is_up(true).await;
    let metrics = |id: &str| v1::PodSandboxMetrics { pod_sandbox_id: id.into(), ..Default::default() };
    let ours = v1::ListPodSandboxMetricsResponse { pod_metrics: vec![metrics("vm1")] };
    world.ours.answers("ListPodSandboxMetrics", &ours);
    let ask = async || {
        let asked = world.runtime("ListPodSandboxMetrics", &()).await;
        asked.map(|list: v1::ListPodSandboxMetricsResponse| list.pod_metrics.len())
    };
    assert_eq!(ask().await.unwrap_err().code(), Code::Unimplemented);
    let theirs = v1::ListPodSandboxMetricsResponse { pod_metrics: vec![metrics("c1")] };
    world.theirs.answers("ListPodSandboxMetrics", &theirs);
    assert_eq!(ask().await.unwrap(), 2);
}

#[tokio::test]
async fn streams_of_lists_have_both_sides_even_where_the_upstream_has_no_streams() {
    let mut world = World::start().await;
    let piece = |id: &str| v1::StreamPodSandboxesResponse { pod_sandboxes: pods(&[id]).items };
    world.ours.answers("StreamPodSandboxes", &piece("vm1"));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    let layer = world.layer.clone();
    let listed = async || {
        let path = format!("{RUNTIME}StreamPodSandboxes");
        let pieces = streaming(layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
        let pieces: Vec<_> = pieces
            .map(|piece| v1::StreamPodSandboxesResponse::decode(piece.unwrap()).unwrap())
            .collect()
            .await;
        pieces.into_iter().flat_map(|piece| piece.pod_sandboxes).map(|pod| pod.id).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["vm1", "c1"]);
    world.theirs.answers("StreamPodSandboxes", &piece("c2"));
    assert_eq!(listed().await, ["vm1", "c2"]);
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.kill();
    assert_eq!(world.pods().await, ["vm1", "c2"], "the last stream was a list, too");
}

#[tokio::test]
async fn a_list_stream_of_an_upstream_that_breaks_off_ends_with_an_error_and_is_no_short_list() {
    let world = World::start().await;
    for (fake, id) in [(&world.ours, "vm1"), (&world.theirs, "c1")] {
        let piece = v1::StreamPodSandboxesResponse { pod_sandboxes: pods(&[id]).items };
        fake.answers("StreamPodSandboxes", &piece);
        let images = v1::StreamImagesResponse { images: vec![image(id)] };
        fake.answers("StreamImages", &images);
    }
    world.theirs.breaks_off();
    let path = format!("{RUNTIME}StreamPodSandboxes");
    let pieces = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
    let pieces: Vec<_> = pieces.collect().await;
    let broken = pieces.last().unwrap().as_ref().unwrap_err();
    assert!(pieces.len() == 3 && broken.code() == Code::Unavailable, "{pieces:?}");
    let path = format!("{IMAGE}StreamImages");
    let refused = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    assert_eq!(world.pods().await, ["vm1", "c1"], "nothing else is disturbed");
}

#[tokio::test]
async fn a_client_of_events_is_sent_back_to_the_lists_when_the_upstream_goes() {
    let mut world = World::start().await;
    let path = format!("{RUNTIME}GetContainerEvents");
    let open = async |world: &World| streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await;
    world.ours.answers("GetContainerEvents", &());
    assert_eq!(open(&world).await.unwrap_err().code(), Code::Unimplemented, "the client polls both then");
    world.theirs.answers("GetContainerEvents", &());
    let mut events = open(&world).await.unwrap();
    for _ in 0..2 {
        events.next().await.unwrap().unwrap();
    }
    world.kill();
    assert_eq!(events.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_silent_upstream_holds_up_no_events_of_ours() {
    let mut world = World::start().await;
    let path = format!("{RUNTIME}GetContainerEvents");
    // A server of gRPC for Go sends nothing before its first event, not even headers.
    world.theirs.hangs_at("GetContainerEvents");
    world.ours.answers("GetContainerEvents", &());
    let mut events = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
    events.next().await.unwrap().unwrap();
    world.kill();
    assert_eq!(events.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
}
