//! The pool of VMMs: a pod gets one with its id, and none outlives the daemon.

use std::collections::BTreeSet;
use std::fs;

use tests_e2e::traces::vmms_without_pod;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, http, spec};

/// Beginnings of the ids of the VMs with directories on the node.
fn ids(host: &Host) -> BTreeSet<String> {
    let dirs = fs::read_dir(host.dir().join("run/pods")).into_iter().flatten().flatten();
    dirs.map(|dir| dir.file_name().into_string().unwrap()).collect()
}

/// Waits until the daemons of this host have logged so many pooled VMMs. Returns the beginning of the only id
/// without a pod. A killed daemon's VMM ends by itself, and the next daemon removes its directory.
async fn waiting(host: &Host, times: usize, pods: &[&str]) -> String {
    host.daemon.logs("a VMM waits for a pod", times).await;
    until_seen("one VM without a pod", async || {
        let mut free = ids(host);
        free.retain(|id| !pods.iter().any(|pod| pod.starts_with(id)));
        only(free)
    })
    .await
}

/// The process id of the only VMM without a pod.
async fn process() -> u32 {
    until_seen("one VMM without a pod", async || only(vmms_without_pod())).await
}

/// The one element of a set, or the whole set if it has none or more.
fn only<T: Ord>(mut set: BTreeSet<T>) -> Result<T, BTreeSet<T>> {
    if set.len() == 1 { set.pop_first().ok_or(set) } else { Err(set) }
}

#[tokio::test]
async fn a_pod_gets_a_vmm_that_waits_and_a_killed_daemon_leaves_none() {
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("spare_namespaces = 0", "spare_namespaces = 1")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let first = waiting(&host, 1, &[]).await;
    let process = process().await;
    let mut client = host.client();
    assert_eq!(client.pods().await.unwrap(), []);

    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("web", host.dir())).await.unwrap();
    assert!(pod.starts_with(&first), "{pod} {first}: {}", host.daemon.log());
    assert_eq!(client.vmm(&pod).await.unwrap().as_raw(), i32::try_from(process).unwrap());
    let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    assert!(cgroups.trim().ends_with(&format!("/podvisor-{pod}/vm")), "{cgroups}");
    let log = fs::read_to_string(host.dir().join("state/pods").join(&pod).join("vmm.log")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"name\":\"web\""), "{log}");
    let line = "mkdir /www; echo served >/www/page; exec httpd -f -p 80 -h /www";
    client.run(&pod, spec::shell("main", &image, line)).await.unwrap();
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(http::get_path(&ip, 80, "/page").await.unwrap().trim(), "served");

    // Another one waits for the next pod, and ends by itself if the daemon is killed. The pod goes on.
    let second = waiting(&host, 2, &[&pod]).await;
    let left = self::process().await;
    host.daemon.kill_and_restart().await.unwrap();
    let third = waiting(&host, 3, &[&pod]).await;
    assert_ne!(third, second, "{}", host.daemon.log());
    assert_ne!(self::process().await, left);
    assert_eq!(http::get_path(&ip, 80, "/page").await.unwrap().trim(), "served");
    let mut client = host.client();
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(ids(&host), BTreeSet::from([third]));
    host.stop().await.unwrap();
}
