//! Limits in the guest, their changes, and a VM growing and shrinking with its pod.

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tonic::{Code, Status};

const MIB: i64 = 1 << 20;

/// A host with a handler for growing pods, however little memory the host has.
const ROOMY: &str = "[[handler]]\nname = \"roomy\"\nmemory_mib = 128\nmemory_max_mib = 640\nvcpus_max = 2\nscratch_mib = 1024\n";

async fn roomy() -> Option<Host> {
    let mut host = Host::start().await?;
    let config = host.daemon.config().to_owned();
    let text = std::fs::read_to_string(&config).unwrap() + ROOMY;
    std::fs::write(&config, text).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    Some(host)
}

fn limits(memory_mib: i64, quota: i64) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        memory_limit_in_bytes: memory_mib * MIB,
        cpu_quota: quota,
        cpu_period: 100_000,
        ..Default::default()
    }
}

fn pod(name: &str, host: &Host, resources: v1::LinuxContainerResources) -> v1::PodSandboxConfig {
    let mut config = spec::pod(name, host.dir());
    let linux = config.linux.get_or_insert_default();
    linux.resources = Some(resources);
    linux.overhead = Some(v1::LinuxContainerResources::default());
    config
}

fn sleeper(name: &str, image: &str, resources: v1::LinuxContainerResources) -> v1::ContainerConfig {
    let mut config = spec::container(name, image, &["sleep", "3600"]);
    config.linux.get_or_insert_default().resources = Some(resources);
    config
}

async fn update(client: &mut Client, id: &str, linux: v1::LinuxContainerResources) -> Result<(), Status> {
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.into(),
        linux: Some(linux),
        ..Default::default()
    };
    client.runtime.update_container_resources(request).await.map(drop)
}

async fn update_pod(client: &mut Client, id: &str, linux: v1::LinuxContainerResources) -> Result<(), Status> {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.into(),
        resources: Some(linux),
        overhead: None,
    };
    client.runtime.update_pod_sandbox_resources(request).await.map(drop)
}

/// Files of the container's cgroup, as the container sees them.
async fn cgroup<const N: usize>(client: &mut Client, id: &str, files: [&str; N]) -> [String; N] {
    let mut values = [const { String::new() }; N];
    for (value, file) in values.iter_mut().zip(files) {
        let text = client.sh(id, &format!("cat /sys/fs/cgroup/{file}")).await.unwrap();
        *value = text.trim().to_owned();
    }
    values
}

async fn reported(client: &mut Client, id: &str) -> v1::LinuxContainerResources {
    client.status(id).await.unwrap().resources.unwrap().linux.unwrap()
}

async fn number(client: &mut Client, id: &str, line: &str) -> i64 {
    client.sh(id, line).await.unwrap().trim().parse().unwrap()
}

async fn memory_mib(client: &mut Client, id: &str) -> i64 {
    number(client, id, "awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo").await
}

#[tokio::test]
async fn limits_hold_in_the_guest_and_change_while_a_container_runs() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&pod("limits", &host, limits(128, 100_000))).await.unwrap();
    let hugepages = ["2MB", "1GB"].map(|size| v1::HugepageLimit { page_size: size.into(), limit: 0 });
    let asked = v1::LinuxContainerResources {
        cpu_shares: 1024,
        memory_swap_limit_in_bytes: 64 * MIB,
        hugepage_limits: hugepages.to_vec(),
        unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
        ..limits(64, 50_000)
    };
    let main = client.run(&pod, sleeper("main", &image, asked.clone())).await.unwrap();
    assert_eq!(reported(&mut client, &main).await, asked);
    let files = ["memory.max", "memory.swap.max", "memory.oom.group", "cpu.weight", "cpu.max"];
    let found = cgroup(&mut client, &main, files).await;
    assert_eq!(found, ["67108864", "0", "1", "100", "50000 100000"]);

    let change = v1::LinuxContainerResources {
        cpu_shares: 512,
        memory_swap_limit_in_bytes: 90 * MIB,
        ..limits(80, -1)
    };
    update(&mut client, &main, change).await.unwrap();
    let found = cgroup(&mut client, &main, files).await;
    assert_eq!(found, ["83886080", "10485760", "1", "59", "max 100000"]);
    let now = reported(&mut client, &main).await;
    assert_eq!((now.memory_limit_in_bytes, now.cpu_shares, now.unified), (80 * MIB, 512, asked.unified));

    // Used memory without a way out: shared memory, in a guest without swap.
    client.sh(&main, "dd if=/dev/zero of=/dev/shm/held bs=1M count=30").await.unwrap();
    let below = update(&mut client, &main, limits(20, 0)).await.unwrap_err();
    assert_eq!(below.code(), Code::FailedPrecondition, "{below}");
    assert!(below.message().contains("memory.max") && below.message().contains("20971520"), "{below}");
    let unknown = [("memory.nonsense".to_owned(), "1".to_owned())].into();
    let odd = v1::LinuxContainerResources { unified: unknown, cpu_shares: 2, ..Default::default() };
    let refused = update(&mut client, &main, odd).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("memory.nonsense"), "{refused}");
    assert_eq!(cgroup(&mut client, &main, ["memory.max", "cpu.weight"]).await, ["83886080", "59"]);
    assert_eq!(reported(&mut client, &main).await.cpu_shares, 512);

    let second = client.create(&pod, sleeper("second", &image, limits(16, 50_000))).await.unwrap();
    update(&mut client, &second, limits(24, 0)).await.unwrap();
    client.start(&second).await.unwrap();
    assert_eq!(cgroup(&mut client, &second, ["memory.max", "cpu.max"]).await, ["25165824", "50000 100000"]);
    client.stop(&second, 0).await.unwrap();
    let ended = update(&mut client, &second, limits(32, 0)).await.unwrap_err();
    assert_eq!(ended.code(), Code::FailedPrecondition, "{ended}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_vm_grows_and_shrinks_with_its_pod_up_to_its_handlers_most() {
    let Some(mut host) = roomy().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = pod("growth", &host, limits(100, 100_000));
    let pod = client.run_pod_on(&config, "roomy").await.unwrap();
    let main = client.run(&pod, sleeper("main", &image, limits(100, 100_000))).await.unwrap();
    assert_eq!(client.sh(&main, "nproc").await.unwrap(), "1\n");
    let small = memory_mib(&mut client, &main).await;

    update_pod(&mut client, &pod, limits(400, 200_000)).await.unwrap();
    let grown = memory_mib(&mut client, &main).await;
    assert!((small + 300..=small + 308).contains(&grown), "{small} MiB, then {grown}");
    assert_eq!(client.sh(&main, "nproc").await.unwrap(), "2\n");
    // The added memory works.
    update(&mut client, &main, limits(350, 0)).await.unwrap();
    client.sh(&main, "dd if=/dev/zero of=/dev/shm/held bs=1M count=55").await.unwrap();
    let info = client.pod_status_verbose(&pod).await.unwrap().1;
    let resources = &info["resources"];
    assert_eq!(resources["size"]["memory_bytes"], 462 * MIB, "{info}");
    assert_eq!(resources["most"]["memory_bytes"], 640 * MIB, "{info}");
    assert_eq!(resources["containers"][&main]["memory_bytes"], 350 * MIB, "{info}");

    let beyond = update_pod(&mut client, &pod, limits(600, 0)).await.unwrap_err();
    assert_eq!(beyond.code(), Code::InvalidArgument, "{beyond}");
    assert!(beyond.message().contains("664 MiB") && beyond.message().contains("640 MiB"), "{beyond}");
    let huge = client.create(&pod, sleeper("huge", &image, limits(600, 100_000))).await.unwrap_err();
    assert_eq!(huge.code(), Code::InvalidArgument, "{huge}");
    // A container beyond its pod's limit brings its own room.
    let large = client.run(&pod, sleeper("large", &image, limits(500, 100_000))).await.unwrap();
    assert!(memory_mib(&mut client, &main).await >= grown + 95);
    client.remove(&large).await.unwrap();

    host.daemon.kill_and_restart().await.unwrap();
    client = host.client();
    assert_eq!(reported(&mut client, &main).await.memory_limit_in_bytes, 350 * MIB);
    update(&mut client, &main, limits(90, 0)).await.unwrap();
    update_pod(&mut client, &pod, limits(100, 100_000)).await.unwrap();
    assert_eq!(client.sh(&main, "nproc").await.unwrap(), "1\n");
    let most = grown - 100;
    until_seen(format!("the guest to give memory back, to {most} MiB"), async || {
        let now = memory_mib(&mut client, &main).await;
        if now <= most { Ok(()) } else { Err(now) }
    })
    .await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
