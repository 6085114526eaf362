//! The pool of network namespaces: a pod gets one of them, with everything of a new one, and none outlives
//! the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use tests_e2e::wait::until_seen;
use tests_e2e::{Host, http, spec};

fn held(host: &Host) -> BTreeSet<u64> {
    host.daemon.held_namespaces().unwrap()
}

async fn waits_until_held(host: &Host, count: usize) -> BTreeSet<u64> {
    until_seen(format!("{count} namespaces that wait"), async || {
        let held = held(host);
        if held.len() == count { Ok(held) } else { Err(held) }
    })
    .await
}

fn namespace_of(pod: &str) -> u64 {
    fs::metadata(format!("/run/netns/podvisor-{pod}")).unwrap().ino()
}

#[tokio::test]
async fn a_pod_gets_a_namespace_that_waits_and_a_killed_daemon_leaves_none() {
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("spare_namespaces = 0", "spare_namespaces = 2")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let waiting = waits_until_held(&host, 2).await;

    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("waited", host.dir())).await.unwrap();
    assert!(waiting.contains(&namespace_of(&pod)), "{waiting:?}: {}", host.daemon.log());
    let line = "mkdir /www; echo served >/www/page; exec httpd -f -p 80 -h /www";
    client.run(&pod, spec::shell("main", &image, line)).await.unwrap();
    let ip = client.pod_ip(&pod).await.unwrap();
    let served = async || http::get_path(&ip, 80, "/page").await.unwrap();
    assert_eq!(served().await.trim(), "served");
    // Another one takes its place.
    assert_ne!(waits_until_held(&host, 2).await, waiting);

    host.daemon.kill_and_restart().await.unwrap();
    let waiting = waits_until_held(&host, 2).await;
    assert!(!waiting.contains(&namespace_of(&pod)), "a pod's own namespace waits for no other");
    assert_eq!(served().await.trim(), "served");
    let mut client = host.client();
    client.remove_pod(&pod).await.unwrap();
    assert!(!fs::exists(format!("/run/netns/podvisor-{pod}")).unwrap());
    host.stop().await.unwrap();
}
