//! Traces: a collector's spans of a pod's life, and the effect of a missing, hanging or late collector on the
//! pod: none.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use proto_cri::v1;
use proto_cri::v1::image_service_client::ImageServiceClient;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use tests_e2e::collector::{Collected, Collector};
use tests_e2e::wait::until;
use tests_e2e::{Host, http, spec};
use tokio::net::TcpListener;
use tonic::Request;
use tonic::transport::Channel;

/// The metrics address of the daemon with a broken collector.
const FIGURES: (&str, u16) = ("127.0.0.1", 9135);

/// The calling kubelet's span.
const CALLER: &str = "00f067aa0ba902b7";

/// A host with spans sent to this address.
async fn start(collector: SocketAddr, more: &str) -> Option<Host> {
    let mut host = Host::start().await?;
    let path = host.daemon.config().to_owned();
    let config = std::fs::read_to_string(&path).unwrap();
    let traces = format!("[traces]\nendpoint = \"http://{collector}\"\n{more}");
    std::fs::write(path, config + &traces).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    Some(host)
}

/// A request of a tracing kubelet, in the trace of this number.
fn traced<T>(message: T, number: u32) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{}-{CALLER}-01", trace(number));
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    request
}

fn trace(number: u32) -> String {
    format!("4bf92f3577b34da6a3ce929d{number:08x}")
}

fn runtime(host: &Host) -> RuntimeServiceClient<Channel> {
    RuntimeServiceClient::new(host.client().channel)
}

/// The share of a span's time covered by spans directly below it.
fn covered(parent: &Collected, spans: &[Collected]) -> f64 {
    let (from, to) = parent.time;
    let below = spans.iter().filter(|span| span.parent == parent.id);
    let mut times: Vec<_> = below.map(|span| (span.time.0.max(from), span.time.1.min(to))).collect();
    times.sort_unstable();
    let (mut sum, mut up_to) = (0, from);
    for (begin, end) in times {
        let begin = begin.max(up_to);
        sum += end.saturating_sub(begin);
        up_to = up_to.max(end);
    }
    sum as f64 / (to - from) as f64
}

/// Names of the spans directly below this one.
fn below<'a>(parent: &Collected, spans: &'a [Collected]) -> BTreeSet<&'a str> {
    spans.iter().filter(|span| span.parent == parent.id).map(|span| span.name.as_str()).collect()
}

/// Checks that the trace is one tree with the call as its root, below its caller.
fn assert_tree(call: &Collected, spans: &[Collected]) {
    assert_eq!(call.parent, CALLER);
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    for span in spans.iter().filter(|span| span.id != call.id) {
        assert!(ids.contains(&span.parent), "{span:?} has no parent in {spans:#?}");
        assert_ne!(span.kind, 2, "{span:?}");
    }
}

#[tokio::test]
async fn a_pods_start_is_one_tree_below_its_caller_and_its_steps_cover_it() {
    let collector = Collector::start().await.unwrap();
    let Some(host) = start(collector.address, "").await else { return };
    let config = spec::pod("traced", host.dir());
    let metadata = config.metadata.clone().unwrap();
    let request = v1::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    let pod = runtime(&host).run_pod_sandbox(traced(request, 1)).await.unwrap().into_inner().pod_sandbox_id;

    let (call, spans) = collector.call(&trace(1), "RunPodSandbox").await;
    assert_tree(&call, &spans);
    let share = covered(&call, &spans);
    eprintln!("steps cover {:.1} % of RunPodSandbox", share * 100.0);
    assert!(share >= 0.95, "{share}: {spans:#?}");
    let phases =
        ["reserve", "record", "network", "scratch", "spawn", "boot", "guest", "plug", "configure", "commit"];
    let steps = below(&call, &spans);
    assert!(phases.iter().all(|phase| steps.contains(phase)), "{steps:?}");
    let find = |name: &str| {
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:#?}"))
    };
    for (step, part) in [
        ("record", "commit"),
        ("network", "CNI ADD"),
        ("network", "make the taps"),
        ("guest", "wait for the agent"),
        ("guest", "connect to the agent"),
        ("plug", "VMM plug"),
        ("configure", "agent ConfigurePod"),
    ] {
        assert!(below(find(step), &spans).contains(part), "{part} is not below {step}: {spans:#?}");
    }
    // A pod from a template goes on, and does not boot.
    let booted = below(find("boot"), &spans);
    assert!(booted.contains("VMM boot") || booted.contains("VMM restore"), "{booted:?}: {spans:#?}");
    assert!(find("CNI ADD").attributes.contains_key("cni.plugin"));
    for (name, value) in [
        ("rpc.system", "grpc"),
        ("rpc.service", "runtime.v1.RuntimeService"),
        ("rpc.method", "RunPodSandbox"),
        ("rpc.grpc.status_code", "0"),
        ("k8s.namespace.name", metadata.namespace.as_str()),
        ("k8s.pod.name", metadata.name.as_str()),
        ("k8s.pod.uid", metadata.uid.as_str()),
        ("podvisor.pod.id", pod.as_str()),
    ] {
        assert_eq!(call.attributes.get(name).map(String::as_str), Some(value), "{name}");
    }
    host.client().remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn each_call_of_a_pods_life_is_a_tree_of_its_own() {
    let collector = Collector::start().await.unwrap();
    let Some(host) = start(collector.address, "").await else { return };
    let mut runtime = runtime(&host);
    let mut images = ImageServiceClient::new(host.client().channel);
    let image = v1::ImageSpec { image: host.busybox(), ..Default::default() };
    let pull = v1::PullImageRequest { image: Some(image), ..Default::default() };
    let image = images.pull_image(traced(pull, 1)).await.unwrap().into_inner().image_ref;
    let pod_config = spec::pod("traced", host.dir());
    let pod = host.client().run_pod(&pod_config).await.unwrap();
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: pod.clone(),
        config: Some(spec::shell("main", &image, "sleep 1000")),
        sandbox_config: Some(pod_config),
    };
    let id = runtime.create_container(traced(create, 2)).await.unwrap().into_inner().container_id;
    let start = v1::StartContainerRequest { container_id: id.clone() };
    runtime.start_container(traced(start.clone(), 3)).await.unwrap();
    runtime.start_container(traced(start, 4)).await.unwrap_err();
    let exec = v1::ExecSyncRequest { container_id: id.clone(), cmd: vec!["true".into()], timeout: 0 };
    runtime.exec_sync(traced(exec, 5)).await.unwrap();
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
    runtime.stop_pod_sandbox(traced(stop, 6)).await.unwrap();

    for (number, method, step) in [
        (1, "PullImage", "layer"),
        (2, "CreateContainer", "create in the guest"),
        (3, "StartContainer", "start in the guest"),
        (5, "ExecSync", "agent Exec"),
        (6, "StopPodSandbox", "end the VM"),
    ] {
        let (call, spans) = collector.call(&trace(number), method).await;
        assert_tree(&call, &spans);
        assert!(spans.iter().any(|span| span.name == step), "{method} has no {step}: {spans:#?}");
        assert_eq!(call.attributes["rpc.grpc.status_code"], "0");
        if number != 1 {
            assert_eq!(call.attributes["k8s.pod.name"], "traced", "{method}");
        }
    }
    let (create, _) = collector.call(&trace(2), "CreateContainer").await;
    assert_eq!(
        (&create.attributes["container.id"], &create.attributes["k8s.container.name"]),
        (&id, &"main".into())
    );
    // Asked twice: the caller is wrong, and the span has the code.
    let (again, _) = collector.call(&trace(4), "StartContainer").await;
    assert_eq!((again.attributes["rpc.grpc.status_code"].as_str(), again.failure), ("9", None));
    host.client().remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_daemon_sends_its_last_spans() {
    let collector = Collector::start().await.unwrap();
    let Some(mut host) = start(collector.address, "").await else { return };
    runtime(&host).version(traced(v1::VersionRequest::default(), 1)).await.unwrap();
    host.daemon.stop().await.unwrap();
    assert!(collector.spans().iter().any(|span| span.trace == trace(1)), "{:?}", collector.spans());
}

/// The daemon's figure of this name, with its labels.
async fn figure(name: &str) -> u64 {
    let figures = http::get_path(FIGURES.0, FIGURES.1, "/metrics").await.unwrap();
    let line =
        figures.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{figures}"));
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn a_collector_that_hangs_disturbs_nobody_and_is_warned_of_once() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hanging.local_addr().unwrap();
    let figures = format!("[metrics]\naddress = \"{}:{}\"\n", FIGURES.0, FIGURES.1);
    let Some(host) = start(address, &figures).await else { return };
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod("undisturbed", host.dir())).await.unwrap();
    until("spans that are not answered to be dropped", async || {
        // More data, so more than one batch is lost.
        client.runtime.version(v1::VersionRequest::default()).await.unwrap();
        figure("podvisor_trace_spans_dropped_total{reason=\"unanswered\"}").await > 0
    })
    .await;
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(figure("podvisor_trace_spans_sent_total").await, 0);
    let log = host.daemon.log();
    assert_eq!(log.matches("the collector of traces does not take spans").count(), 1, "{log}");
    // If the daemon does not end, this is an error.
    host.stop().await.unwrap();
    drop(hanging);
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_what_is_made_from_then_on() {
    // A free port while the daemon starts.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let Some(host) = start(address, "").await else { return };
    runtime(&host).version(traced(v1::VersionRequest::default(), 1)).await.unwrap();
    host.daemon.logs("the collector of traces does not take spans", 1).await;
    let collector = Collector::start_at(address).await.unwrap();
    runtime(&host).version(traced(v1::VersionRequest::default(), 2)).await.unwrap();
    collector.call(&trace(2), "Version").await;
    host.daemon.logs("the collector of traces takes spans again", 1).await;
    host.stop().await.unwrap();
}
