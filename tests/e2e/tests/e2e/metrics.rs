//! The daemon's metrics for Prometheus.

use proto_cri::v1;
use tests_e2e::prometheus::{Prometheus, lint};
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, http, spec};

const ADDRESS: &str = "127.0.0.1";
const PORT: u16 = 9134;

/// The configuration section for metrics, with the address of the operators' page.
pub(crate) const SECTION: &str = "[metrics]\naddress = \"127.0.0.1:9134\"\n";

/// A host with metrics.
async fn start() -> Option<Host> {
    let mut host = Host::start().await?;
    let path = host.daemon.config().to_owned();
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, config + SECTION).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    are_served().await;
    Some(host)
}

/// Waits for the figures: a daemon answers calls a moment earlier.
pub(crate) async fn are_served() {
    http::get_path(ADDRESS, PORT, "/metrics").await.unwrap();
}

pub(crate) async fn figures(path: &str) -> String {
    http::get_path(ADDRESS, PORT, path).await.unwrap()
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
        "podvisor_image_pulls_total{outcome=\"error\"} 0",
        "podvisor_image_pulls_total{outcome=\"refused\"} 0",
        "podvisor_log_dropped_bytes_total 0",
        "podvisor_streaming_sessions_total{kind=\"attach\"} 0",
        "podvisor_pods_recovered_total{outcome=\"lost\"} 0",
        "podvisor_cri_request_failures_total{method=\"RunPodSandbox\"} 0",
        "podvisor_records_waiting 0",
        "podvisor_pods_waiting_for_room 0",
        "podvisor_device_faults{device=\"net\"} 0",
        "podvisor_dropped_frames{direction=\"to_pods\"} 0",
        "podvisor_records_quarantined 0",
        "podvisor_disk_answers 1",
        "podvisor_pod_start_phase_duration_seconds_count{phase=\"total\"} 1",
        "podvisor_cri_request_duration_seconds_count{code=\"NotFound\",method=\"PodSandboxStatus\"} 1",
    ] {
        assert!(daemon.lines().any(|found| found == line), "{line} is not in\n{daemon}");
    }
    assert_eq!(lint(&daemon).await.unwrap(), "");

    // A guest is left out if it answers late.
    let containers = until_seen("the figures of a container", async || {
        let figures = figures("/metrics/cadvisor").await;
        if figures.contains("container=\"busy\"") { Ok(figures) } else { Err(figures) }
    });
    let containers = containers.await;
    let series = |name: &str, container: &str| {
        let found = containers.lines().find(|line| {
            line.starts_with(&format!("{name}{{")) && line.contains(&format!("container=\"{container}\""))
        });
        found.unwrap_or_else(|| panic!("{name} of {container:?} is not in\n{containers}"))
    };
    assert!(series("container_cpu_usage_seconds_total", "busy").contains("pod=\"figures\""));
    series("container_memory_working_set_bytes", "busy");
    series("container_network_receive_bytes_total", "");
    assert!(http::ask(ADDRESS, PORT, "/").await.unwrap_err().to_string().contains("404"));

    let prometheus = Prometheus::start(host.dir()).unwrap();
    assert_eq!(prometheus.value("sum(podvisor_pods)").await.unwrap(), 1.0);
    // The usual rules select so.
    let kubelets = "job=\"kubelet\", metrics_path=\"/metrics/cadvisor\", image!=\"\"";
    let used = format!("container_cpu_usage_seconds_total{{{kubelets}, container=\"busy\"}}");
    assert!(prometheus.value(&used).await.unwrap() >= 0.0);
    let of_pods =
        format!("count(container_memory_working_set_bytes{{{kubelets}, container=\"\"}}) or vector(0)");
    assert_eq!(prometheus.value(&of_pods).await.unwrap(), 0.0, "a pod's own series have no image");

    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn clients_that_hang_keep_nobody_from_the_figures() {
    let Some(host) = start().await else { return };
    // Three silent connections, and one stopping in the middle of its request.
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
