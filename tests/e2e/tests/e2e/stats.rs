//! Usage of pods and containers: figures growing with the work, and the host's own accounting.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tonic::Code;

const MIB: u64 = 1 << 20;

fn number(value: Option<v1::UInt64Value>) -> u64 {
    value.expect("a figure").value
}

async fn stats(client: &mut Client, container: &str) -> v1::ContainerStats {
    let request = v1::ContainerStatsRequest { container_id: container.into() };
    client.runtime.container_stats(request).await.unwrap().into_inner().stats.unwrap()
}

async fn pod_stats(client: &mut Client, pod: &str) -> v1::LinuxPodSandboxStats {
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: pod.into() };
    client.runtime.pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap().linux.unwrap()
}

fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Stats reported by the guest since the call: for a late guest the daemon shows its last answer.
async fn stats_of_now(client: &mut Client, container: &str) -> v1::ContainerStats {
    let since = now_ns();
    until_seen("figures of now of a container", async || {
        let stats = stats(client, container).await;
        if stats.cpu.is_some_and(|cpu| cpu.timestamp > since) { Ok(stats) } else { Err(stats) }
    })
    .await
}

/// Stats of a pod as [`stats_of_now`]'s.
async fn pod_stats_of_now(client: &mut Client, pod: &str) -> v1::LinuxPodSandboxStats {
    let since = now_ns();
    until_seen("figures of now of a pod", async || {
        let stats = pod_stats(client, pod).await;
        let is_of_now = stats.network.as_ref().is_some_and(|network| network.timestamp > since);
        if is_of_now { Ok(stats) } else { Err(stats) }
    })
    .await
}

/// Ids of the containers with stats passing the filter.
async fn listed(client: &mut Client, filter: v1::ContainerStatsFilter) -> Vec<String> {
    let request = v1::ListContainerStatsRequest { filter: Some(filter) };
    let stats = client.runtime.list_container_stats(request).await.unwrap().into_inner().stats;
    stats.into_iter().map(|one| one.attributes.unwrap().id).collect()
}

fn writable_layer(stats: &v1::ContainerStats) -> (u64, u64) {
    let layer = stats.writable_layer.clone().expect("the writable layer is measured");
    assert!(layer.timestamp > 0);
    assert!(Path::new(&layer.fs_id.unwrap().mountpoint).is_dir());
    (number(layer.used_bytes), number(layer.inodes_used))
}

fn working_set(memory: &Option<v1::MemoryUsage>) -> u64 {
    number(memory.unwrap().working_set_bytes)
}

fn cpu_ns(cpu: &Option<v1::CpuUsage>) -> u64 {
    number(cpu.unwrap().usage_core_nano_seconds)
}

#[tokio::test]
async fn figures_grow_with_what_a_container_does() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("busy", host.dir())).await.unwrap();
    let mut config = spec::with_memory(spec::container("main", &image, &["sleep", "3600"]), 128 << 20);
    config.labels = [("app".to_owned(), "busy".to_owned())].into();
    let container = client.run(&pod, config).await.unwrap();
    let idle = client.create(&pod, spec::container("idle", &image, &["sleep", "3600"])).await.unwrap();

    let before = stats_of_now(&mut client, &container).await;
    let pod_before = pod_stats_of_now(&mut client, &pod).await;
    let ip = client.sh(&container, "ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'").await.unwrap();
    let work = format!(
        "dd if=/dev/zero of=/big bs=1M count=20 && sync && dd if=/dev/zero of=/dev/shm/held bs=1M count=16 && \
         i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; ping -c 2 -w 300 {}",
        ip.trim()
    );
    let worked = client.exec(&container, &["sh", "-c", &work], 600).await.unwrap();
    assert_eq!(worked.exit_code, 0, "{worked:?}");
    let after = stats_of_now(&mut client, &container).await;
    let pod_after = pod_stats_of_now(&mut client, &pod).await;

    assert!(cpu_ns(&after.cpu) > cpu_ns(&before.cpu));
    assert!(working_set(&after.memory) >= working_set(&before.memory) + 16 * MIB, "{before:?} {after:?}");
    let memory = after.memory.unwrap();
    assert!(number(memory.available_bytes) <= 128 * MIB - 16 * MIB && number(memory.page_faults) > 0);
    let (bytes, inodes) = writable_layer(&before);
    let (bytes_after, inodes_after) = writable_layer(&after);
    assert!((bytes + 20 * MIB..bytes + 24 * MIB).contains(&bytes_after), "{bytes} then {bytes_after}");
    assert_eq!(inodes_after, inodes + 1);
    client.sh(&container, "rm /big").await.unwrap();
    assert!(writable_layer(&stats_of_now(&mut client, &container).await).0 < bytes + 4 * MIB);

    let network = |stats: &v1::LinuxPodSandboxStats| {
        let interface = stats.network.clone().unwrap().default_interface.unwrap();
        assert_eq!(interface.name, "eth0");
        (number(interface.rx_bytes), number(interface.tx_bytes))
    };
    let ((rx, tx), (rx_after, tx_after)) = (network(&pod_before), network(&pod_after));
    assert!(rx_after > rx && tx_after > tx);
    assert!(cpu_ns(&pod_after.cpu) > cpu_ns(&pod_before.cpu));
    // The VM holds the container's memory, and its own.
    assert!(working_set(&pod_after.memory) > 16 * MIB, "{pod_after:?}");
    assert!(number(pod_after.process.unwrap().process_count) >= 1);
    assert_eq!(pod_after.containers.len(), 1);

    filters(&mut client, &pod, &container).await;
    // Created and not started: known, but not running.
    assert_eq!(stats(&mut client, &idle).await.attributes.unwrap().metadata.unwrap().name, "idle");
    metrics(&mut client, &pod, &container).await;
    disks(&mut client).await;
    a_hung_vm_is_reported_with_its_last_figures(&mut client, &pod, &container).await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

async fn filters(client: &mut Client, pod: &str, container: &str) {
    let labelled = |value: &str| v1::ContainerStatsFilter {
        label_selector: [("app".to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    let by_pod = v1::ContainerStatsFilter { pod_sandbox_id: pod.into(), ..Default::default() };
    let by_id =
        v1::ContainerStatsFilter { id: container.into(), pod_sandbox_id: pod.into(), ..labelled("busy") };
    for filter in [Default::default(), by_pod, by_id, labelled("busy")] {
        assert_eq!(listed(client, filter.clone()).await, [container], "{filter:?}");
    }
    let no_pod = v1::ContainerStatsFilter { pod_sandbox_id: "none".into(), ..labelled("busy") };
    for filter in [labelled("idle"), no_pod] {
        assert_eq!(listed(client, filter.clone()).await, Vec::<String>::new(), "{filter:?}");
    }
    let none = v1::ContainerStatsRequest { container_id: "none".into() };
    assert_eq!(client.runtime.container_stats(none).await.unwrap_err().code(), Code::NotFound);
    let none = v1::PodSandboxStatsRequest { pod_sandbox_id: "none".into() };
    assert_eq!(client.runtime.pod_sandbox_stats(none).await.unwrap_err().code(), Code::NotFound);
    let mut stream = client
        .runtime
        .stream_container_stats(v1::StreamContainerStatsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let piece = stream.message().await.unwrap().unwrap().container_stats;
    assert_eq!(piece.len(), 1);
    assert!(stream.message().await.unwrap().is_none());
}

/// Every described metric has a value with all its labels.
async fn metrics(client: &mut Client, pod: &str, container: &str) {
    let request = v1::ListMetricDescriptorsRequest::default();
    let described = client.runtime.list_metric_descriptors(request).await.unwrap().into_inner().descriptors;
    let labels: BTreeMap<_, _> =
        described.iter().map(|one| (one.name.as_str(), one.label_keys.len())).collect();
    let request = v1::ListPodSandboxMetricsRequest::default();
    let pods = client.runtime.list_pod_sandbox_metrics(request).await.unwrap().into_inner().pod_metrics;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].pod_sandbox_id, pod);
    assert_eq!(pods[0].container_metrics[0].container_id, container);
    let values: Vec<_> = pods[0].metrics.iter().chain(&pods[0].container_metrics[0].metrics).collect();
    for value in &values {
        assert_eq!(value.label_values.len(), labels[value.name.as_str()], "{value:?}");
    }
    let named: BTreeSet<_> = values.iter().map(|value| value.name.as_str()).collect();
    let missing: Vec<_> = labels.keys().filter(|name| !named.contains(*name)).collect();
    // The container has no quota.
    assert_eq!(missing, [&"container_spec_cpu_quota"]);
    let find = |name: &str| number(values.iter().find(|value| value.name == name).unwrap().value);
    assert_eq!(find("container_spec_memory_limit_bytes"), 128 * MIB);
    assert!(find("container_fs_limit_bytes") > find("container_fs_usage_bytes"));
    assert_eq!((find("container_processes"), find("container_threads")), (1, 1));
}

async fn disks(client: &mut Client) {
    let usage = client.images.image_fs_info(v1::ImageFsInfoRequest::default()).await.unwrap().into_inner();
    for file_system in [&usage.image_filesystems[0], &usage.container_filesystems[0]] {
        assert!(file_system.timestamp > 0 && number(file_system.used_bytes) > 0, "{file_system:?}");
        assert!(Path::new(&file_system.fs_id.as_ref().unwrap().mountpoint).is_dir());
    }
}

async fn a_hung_vm_is_reported_with_its_last_figures(client: &mut Client, pod: &str, container: &str) {
    let vmm = client.vmm(pod).await.unwrap();
    let before = stats_of_now(client, container).await.cpu.unwrap();
    kill(vmm, Signal::SIGSTOP).unwrap();
    let hung = stats(client, container).await.cpu.unwrap();
    kill(vmm, Signal::SIGCONT).unwrap();
    assert_eq!(
        (hung.timestamp, hung.usage_core_nano_seconds),
        (before.timestamp, before.usage_core_nano_seconds)
    );
}

/// The pod's cgroup, with its VMM in a child.
async fn cgroup_of(client: &mut Client, pod: &str) -> PathBuf {
    let table = std::fs::read_to_string(format!("/proc/{}/cgroup", client.vmm(pod).await.unwrap())).unwrap();
    // cgroups(7): "0::" is version 2's.
    let path = table.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let path = path.strip_suffix("/vm").unwrap();
    Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'))
}

#[tokio::test]
async fn a_pods_vm_is_accounted_below_its_cgroup_parent() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let root = Path::new("/sys/fs/cgroup");
    // A guest from a template only owns its written pages.
    let least = if host.daemon.has_templates() { 4 * MIB } else { 16 * MIB };
    let parents = [
        ("e2estats/burstable/pod1", root.join("e2estats/burstable/pod1")),
        ("e2estats-burstable.slice", root.join("e2estats.slice/e2estats-burstable.slice")),
    ];
    for (parent, expected) in &parents {
        let mut config = spec::pod("accounted", host.dir());
        config.linux.get_or_insert_default().cgroup_parent = (*parent).into();
        let pod = client.run_pod(&config).await.unwrap();
        let cgroup = cgroup_of(&mut client, &pod).await;
        assert_eq!(cgroup.parent(), Some(expected.as_path()));
        let memory = std::fs::read_to_string(cgroup.join("memory.current")).unwrap();
        assert!(memory.trim().parse::<u64>().unwrap() > least, "the guest's memory is in {memory}");
        // The parent includes its child's usage.
        assert!(expected.join("memory.current").exists() && expected.join("cpu.stat").exists());
        client.remove_pod(&pod).await.unwrap();
        assert!(!cgroup.exists() && expected.exists());
    }
    let mut config = spec::pod("refused", host.dir());
    config.linux.get_or_insert_default().cgroup_parent = "a--b.slice".into();
    let error = client.run_pod(&config).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("cgroup_parent"), "{error}");
    for (_, expected) in &parents {
        for level in expected.ancestors().take_while(|level| *level != root) {
            std::fs::remove_dir(level).unwrap();
        }
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_keeps_its_controllers_when_systemd_takes_those_of_its_slice() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let mut config = spec::pod("kept", host.dir());
    config.linux.get_or_insert_default().cgroup_parent = "e2ekept.slice".into();
    let pod = client.run_pod(&config).await.unwrap();
    let cgroup = cgroup_of(&mut client, &pod).await;
    let slice = cgroup.parent().unwrap();
    // As systemd does it at each reload: one write for each controller that no unit in the slice needs.
    for controller in ["-cpu", "-io", "-memory", "-pids"] {
        let taken = std::fs::write(slice.join("cgroup.subtree_control"), controller);
        assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy, "{controller}");
    }
    assert_eq!(std::fs::read_to_string(cgroup.join("pids.max")).unwrap(), "4096\n");
    assert!(cgroup.join("memory.current").exists());
    client.remove_pod(&pod).await.unwrap();
    assert!(!cgroup.exists());
    std::fs::remove_dir(slice).unwrap();
    host.stop().await.unwrap();
}
