//! VMMs that wait for pods: a pod gets one with its id, and none outlives the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tests_e2e::traces::vmms_without_pod;
use tests_e2e::{Host, http, spec};

/// Generous: the software node is slow, and makes none while a pod starts.
const MADE_WITHIN: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Beginnings of the ids of the VMs that have directories on the node.
fn ids(host: &Host) -> BTreeSet<String> {
    let dirs = fs::read_dir(host.dir().join("run/pods")).into_iter().flatten().flatten();
    dirs.map(|dir| dir.file_name().into_string().unwrap()).collect()
}

/// Waits until the daemons of this host have logged so often that a VMM waits. Returns the beginning of the id of the only one that no
/// pod has.
async fn waiting(host: &Host, times: usize, pods: &[&str]) -> String {
    let waits = async {
        while host.daemon.log().matches("a VMM waits for a pod").count() < times {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(MADE_WITHIN, waits).await;
    waited.unwrap_or_else(|_| panic!("no VMM waits: {}", host.daemon.log()));
    let mut free = ids(host);
    free.retain(|id| !pods.iter().any(|pod| pod.starts_with(id)));
    assert_eq!(free.len(), 1, "{free:?}: {}", host.daemon.log());
    free.pop_first().unwrap()
}

/// The process id of the only VMM without a pod.
fn process() -> u32 {
    let mut processes = vmms_without_pod();
    assert_eq!(processes.len(), 1, "{processes:?}");
    processes.pop_first().unwrap()
}

#[tokio::test]
async fn a_pod_gets_a_vmm_that_waits_and_a_killed_daemon_leaves_none() {
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("spare_namespaces = 0", "spare_namespaces = 1")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let first = waiting(&host, 1, &[]).await;
    let process = process();
    let mut client = host.client();
    assert_eq!(client.pods().await.unwrap(), []);

    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("web", host.dir())).await.unwrap();
    assert!(pod.starts_with(&first), "{pod} {first}: {}", host.daemon.log());
    let info = client.pod_status_verbose(&pod).await.unwrap().1;
    assert_eq!(info["vmm"]["pid"].as_u64(), Some(u64::from(process)));
    let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    assert!(cgroups.trim().ends_with(&format!("/podvisor-{pod}")), "{cgroups}");
    let log = fs::read_to_string(host.dir().join("state/pods").join(&pod).join("vmm.log")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"name\":\"web\""), "{log}");
    let line = "mkdir /www; echo served >/www/page; exec httpd -f -p 80 -h /www";
    client.run(&pod, spec::shell("main", &image, line)).await.unwrap();
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(http::get_path(&ip, 80, "/page", 100).await.unwrap().trim(), "served");

    // Another one waits for the next pod, and ends by itself where the daemon is killed. The pod goes on.
    let second = waiting(&host, 2, &[&pod]).await;
    let left = self::process();
    host.daemon.kill_and_restart().await.unwrap();
    let third = waiting(&host, 3, &[&pod]).await;
    assert_ne!(third, second, "{}", host.daemon.log());
    assert_ne!(self::process(), left);
    assert_eq!(http::get_path(&ip, 80, "/page", 100).await.unwrap().trim(), "served");
    let mut client = host.client();
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(ids(&host), BTreeSet::from([third]));
    host.stop().await.unwrap();
}
