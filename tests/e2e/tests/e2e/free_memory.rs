//! Memory freed by a container, or only caching files, goes back to the node.

use tests_e2e::client::Client;
use tests_e2e::memory_shortage::MemoryShortage;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

/// Most of 64 MiB kept by a pod.
const KEPT_KIB_MAX: u64 = 8 << 10;

/// The pod's memory on the node: the proportional set size of its VMM, in KiB.
async fn pss_kib(client: &mut Client, pod: &str) -> u64 {
    let vmm = client.vmm(pod).await.unwrap();
    let rollup = std::fs::read_to_string(format!("/proc/{vmm}/smaps_rollup")).unwrap();
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    pss.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Waits until the pod has no more than `most` KiB, and returns them: the guest gives back in its own time.
async fn falls_to(client: &mut Client, pod: &str, most: u64) -> u64 {
    until_seen(format!("the pod to have {most} KiB at the most"), async || {
        let pss = pss_kib(client, pod).await;
        if pss <= most { Ok(pss) } else { Err(pss) }
    })
    .await
}

#[tokio::test]
async fn memory_that_a_container_has_freed_goes_back_to_the_node() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("free", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let booted = pss_kib(&mut client, &pod).await;
    // First the memory left free by the boot. A template has none of it.
    let least = if host.daemon.has_templates() { 0 } else { 4 << 10 };
    let rested = falls_to(&mut client, &pod, booted - least).await;
    for _ in 0..2 {
        let held = client
            .sh(
                &container,
                "dd if=/dev/zero of=/dev/shm/held bs=1M count=60 2>/dev/null; du -m /dev/shm/held | cut -f1",
            )
            .await
            .unwrap();
        assert_eq!(held.trim(), "60");
        let touched = pss_kib(&mut client, &pod).await;
        assert!(
            touched >= rested + (40 << 10),
            "{rested} KiB at rest, {touched} KiB with 60 MiB more in use"
        );
        client.sh(&container, "rm /dev/shm/held").await.unwrap();
        falls_to(&mut client, &pod, rested + KEPT_KIB_MAX).await;
        // The next daemon has nothing to do for it.
        host.daemon.kill_and_restart().await.unwrap();
        client = host.client();
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// The guest's memory in MiB.
async fn guest_mib(client: &mut Client, container: &str) -> u64 {
    let line = client.sh(container, "grep MemTotal /proc/meminfo").await.unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn plugged_memory_that_a_container_has_freed_goes_back_to_the_node() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("plugged", host.dir())).await.unwrap();
    let small = client.run(&pod, spec::container("small", &image, &["sleep", "3600"])).await.unwrap();
    let before = guest_mib(&mut client, &small).await;
    let large = spec::with_memory(spec::container("large", &image, &["sleep", "3600"]), 512 << 20);
    let large = client.run(&pod, large).await.unwrap();
    let after = guest_mib(&mut client, &large).await;
    assert!(after >= before + 256, "{before} MiB, then {after}: the container brings memory along");
    // Programs' pages come from plugged memory, because it is movable.
    let rested = pss_kib(&mut client, &pod).await;
    client.sh(&large, "dd if=/dev/zero of=/dev/shm/held bs=1M count=60 2>/dev/null").await.unwrap();
    let touched = pss_kib(&mut client, &pod).await;
    assert!(touched >= rested + (40 << 10), "{rested} KiB at rest, {touched} KiB with 60 MiB more in use");
    client.sh(&large, "rm /dev/shm/held").await.unwrap();
    falls_to(&mut client, &pod, rested + KEPT_KIB_MAX).await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_short_of_memory_gets_what_guests_only_cache() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("cached", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let rested = pss_kib(&mut client, &pod).await;
    let write = "dd if=/dev/urandom of=/file bs=1M count=48 2>/dev/null; sync; md5sum </file";
    let sum = client.sh(&container, write).await.unwrap();
    let cached = pss_kib(&mut client, &pod).await;
    assert!(cached >= rested + (40 << 10), "{rested} KiB at rest, {cached} KiB with 48 MiB cached");
    let shortage = MemoryShortage::pretend(host.dir()).unwrap();
    falls_to(&mut client, &pod, rested + 2 * KEPT_KIB_MAX).await;
    drop(shortage);
    assert_eq!(client.sh(&container, "md5sum </file").await.unwrap(), sum);
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
