//! The figures that the daemon has for a Prometheus.

use proto_cri::v1;
use tests_e2e::prometheus::{Prometheus, lint};
use tests_e2e::{Host, http, spec};

const ADDRESS: &str = "127.0.0.1";
const PORT: u16 = 9134;

/// A host whose daemon serves figures.
async fn start() -> Option<Host> {
    let mut host = Host::start().await?;
    let path = host.daemon.config().to_owned();
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, config + &format!("[metrics]\naddress = \"{ADDRESS}:{PORT}\"\n")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    // A daemon answers calls a moment earlier.
    http::get_path(ADDRESS, PORT, "/metrics", 50).await.unwrap();
    Some(host)
}

async fn figures(path: &str) -> String {
    http::get_path(ADDRESS, PORT, path, 1).await.unwrap()
}

#[tokio::test]
async fn a_prometheus_sees_what_runs_and_what_has_ended() {
    let Some(host) = start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("figures", host.dir())).await.unwrap();
    let busy = spec::shell("busy", &image, "while :; do :; done");
    let busy = client.create(&pod, busy).await.unwrap();
    client.start(&busy).await.unwrap();
    let failing = client.create(&pod, spec::shell("failing", &image, "exit 3")).await.unwrap();
    client.start(&failing).await.unwrap();
    client.wait(&failing).await.unwrap();
    let absent = client.pod_status("nobody").await.unwrap_err();
    assert_eq!(absent.code(), tonic::Code::NotFound);

    let daemon = figures("/metrics").await;
    for line in [
        "podvisor_pods{state=\"ready\"} 1",
        "podvisor_containers{state=\"running\"} 1",
        "podvisor_containers{state=\"exited\"} 1",
        "podvisor_container_exits_total{reason=\"Error\"} 1",
        "podvisor_container_exits_total{reason=\"OOMKilled\"} 0",
        "podvisor_vms_lost_total 0",
        "podvisor_pods_outdated{part=\"any\"} 0",
        "podvisor_restart_needed 0",
        "podvisor_image_pulls_total{outcome=\"ok\"} 1",
        "podvisor_pod_start_phase_duration_seconds_count{phase=\"total\"} 1",
        "podvisor_cri_request_duration_seconds_count{code=\"NotFound\",method=\"PodSandboxStatus\"} 1",
    ] {
        assert!(daemon.lines().any(|found| found == line), "{line} is not in\n{daemon}");
    }
    assert_eq!(lint(&daemon).await.unwrap(), "");

    let containers = figures("/metrics/cadvisor").await;
    let series = |name: &str, container: &str| {
        let found = containers.lines().find(|line| {
            line.starts_with(&format!("{name}{{")) && line.contains(&format!("container=\"{container}\""))
        });
        found.unwrap_or_else(|| panic!("{name} of {container:?} is not in\n{containers}"))
    };
    assert!(series("container_cpu_usage_seconds_total", "busy").contains("pod=\"figures\""));
    series("container_memory_working_set_bytes", "busy");
    series("container_network_receive_bytes_total", "");
    assert!(http::get_path(ADDRESS, PORT, "/", 1).await.unwrap_err().to_string().contains("404"));

    let prometheus = Prometheus::start(host.dir(), &format!("{ADDRESS}:{PORT}")).unwrap();
    assert_eq!(prometheus.value("sum(podvisor_pods)").await.unwrap(), 1.0);
    let used = prometheus.value("container_cpu_usage_seconds_total{container=\"busy\"}").await.unwrap();
    assert!(used >= 0.0);

    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn clients_that_hang_keep_nobody_from_the_figures() {
    let Some(host) = start().await else { return };
    // Three that say nothing, and one that stops in the middle of its request.
    let mut hanging = Vec::new();
    for _ in 0..3 {
        hanging.push(tokio::net::TcpStream::connect((ADDRESS, PORT)).await.unwrap());
    }
    let mut half = tokio::net::TcpStream::connect((ADDRESS, PORT)).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut half, b"GET /metrics HTTP/1.1\r\nHos").await.unwrap();
    assert!(figures("/metrics").await.contains("podvisor_pods{state=\"ready\"} 0"));
    let version = host.client().runtime.version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(version.into_inner().runtime_name, "podvisor");
    host.stop().await.unwrap();
}
