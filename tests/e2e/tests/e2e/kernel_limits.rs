//! Limits of the guest's kernel: those for the pod's largest size, not for its size at boot.

use tests_e2e::{Host, spec};

#[tokio::test]
async fn limits_of_the_guests_kernel_are_those_of_the_memory_that_the_pod_may_have() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("limits", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let info = client.pod_info(&pod, "/guest").await.unwrap();
    let most = info["resources"]["most"]["memory_bytes"].as_u64().unwrap();
    assert!(most > info["guest"]["total_bytes"].as_u64().unwrap(), "{info}");
    // A thread takes 16 KiB of stack, and the kernel gives all stacks an eighth of the memory; one user may
    // have half of them.
    let threads = most / (8 * 16 * 1024);
    let of_first_network = ("cut -f3 /proc/sys/net/ipv4/tcp_mem", most / 4096 / 16);
    let limits = [
        ("cat /proc/sys/kernel/threads-max", threads),
        ("awk '/^Max processes/ { print $3 }' /proc/self/limits", threads / 2),
        ("cat /proc/sys/user/max_pid_namespaces", threads / 2),
        ("cat /proc/sys/fs/file-max", most / 10 / 1024),
        ("cat /proc/sys/fs/aio-max-nr", 1_048_576),
        ("cat /proc/sys/fs/protected_fifos", 1),
        ("cat /proc/sys/fs/protected_hardlinks", 1),
        ("cat /proc/sys/fs/protected_regular", 2),
        ("cat /proc/sys/fs/protected_symlinks", 1),
        ("cat /proc/sys/vm/max_map_count", 1_048_576),
        ("cat /proc/sys/net/core/rmem_max", 4 << 20),
        ("cat /proc/sys/net/core/wmem_max", 4 << 20),
        ("cat /proc/sys/fs/inotify/max_user_instances", 128),
        ("cat /proc/sys/fs/inotify/max_user_watches", 8192),
        ("cat /proc/sys/net/ipv4/tcp_max_tw_buckets", (most / (256 * 1024)).min(262_144)),
        ("cat /proc/sys/net/netfilter/nf_conntrack_max", (most / (16 * 1024) / 8).min(65_536)),
    ];
    // The kernel only shows this one in the guest's first network. A pod from a template is in another one.
    let first = (!host.daemon.has_templates()).then_some(of_first_network);
    for (line, least) in limits.into_iter().chain(first) {
        let text = client.sh(&container, line).await.unwrap();
        let found = text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{line}: {text:?}"));
        assert!(found >= least, "{line}: {found} is less than {least}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_sysctl_of_the_kernels_first_network_is_set_for_a_booted_and_for_a_restored_pod() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    for name in ["one", "two"] {
        let mut config = spec::pod(name, host.dir());
        let linux = config.linux.get_or_insert_default();
        linux.sysctls.insert("net.core.rmem_max".into(), "7500000".into());
        linux.sysctls.insert("net.core.somaxconn".into(), "777".into());
        let pod = client.run_pod(&config).await.unwrap();
        let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
        let read = "cat /proc/sys/net/core/rmem_max /proc/sys/net/core/somaxconn";
        assert_eq!(client.sh(&container, read).await.unwrap(), "7500000\n777\n");
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}
