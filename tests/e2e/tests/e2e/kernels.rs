//! Two guest kernels on one node, by the pods' handlers.

use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

/// Largest shortfall of memory for containers with the full kernel, compared with the small one, in KiB: the
/// variation between boots.
const LESS_KIB_MAX: u64 = 4 << 10;

/// Starts a pod of the handler with a container, and returns both.
async fn run(host: &Host, client: &mut Client, image: &str, handler: &str) -> (String, String) {
    let pod = client.run_pod_on(&spec::pod(handler, host.dir()), handler).await.unwrap();
    let container = client.run(&pod, spec::shell("main", image, "exec sleep 100000")).await.unwrap();
    (pod, container)
}

#[tokio::test]
async fn a_pod_has_the_kernel_of_its_handler_and_as_much_memory_with_either() {
    if Built::of_environment().is_some_and(|built| !built.guest_image.join("vmlinux-full").exists()) {
        eprintln!("the full kernel is not built");
        return;
    }
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let config = std::fs::read_to_string(&path).unwrap();
    let full = "[[handler]]\nname = \"full\"\nmemory_mib = 128\nscratch_mib = 1024\nkernel = \"full\"\n";
    std::fs::write(&path, config + full).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut available = Vec::new();
    for (handler, kernel, has_configuration) in
        [("podvisor", "podvisor", "no"), ("full", "podvisor-full", "yes")]
    {
        let (pod, container) = run(&host, &mut client, &image, handler).await;
        let release = client.sh(&container, "uname -r").await.unwrap();
        assert!(release.trim().ends_with(&format!("-{kernel}")), "{release}");
        let configuration = "[ -e /proc/config.gz ] && echo yes || echo no";
        assert_eq!(client.sh(&container, configuration).await.unwrap().trim(), has_configuration);
        let memory = client.sh(&container, "grep -e MemTotal -e MemAvailable /proc/meminfo").await.unwrap();
        println!("{handler}: {}", memory.split_whitespace().collect::<Vec<_>>().join(" "));
        let kib = memory.lines().last().unwrap().split_whitespace().nth(1).unwrap();
        available.push(kib.parse::<u64>().unwrap());
        client.remove_pod(&pod).await.unwrap();
    }
    assert!(available[1] + LESS_KIB_MAX >= available[0], "{available:?}");
    host.stop().await.unwrap();
}
