//! Pods of `podvisor run` behind a node's firewall.

use std::process::Command;

use tests_e2e::Host;

/// Run on the node, with a host behind it and a firewall that forwards nothing unknown, as Docker's.
const BEHIND: &str = "\
    ip netns add behind && ip link add to-behind type veth peer name eth0 netns behind
    ip addr add 198.51.100.1/24 dev to-behind && ip link set to-behind up
    ip -n behind addr add 198.51.100.2/24 dev eth0 && ip -n behind link set eth0 up
    iptables -P FORWARD DROP";

const ALONE: &str =
    "iptables -P FORWARD ACCEPT; ip netns delete behind; ip link delete to-behind 2>/dev/null || true";

/// The node as above, until it is dropped.
struct Behind;

impl Behind {
    fn start() -> Behind {
        let behind = Behind;
        shell(BEHIND);
        behind
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        shell(ALONE);
    }
}

fn shell(lines: &str) {
    let status = Command::new("sh").args(["-ec", lines]).status().unwrap();
    assert!(status.success(), "{status}: {lines}");
}

#[tokio::test]
async fn a_pod_of_a_run_gets_through_the_nodes_firewall_and_leaves_no_rule() {
    let Some(host) = Host::start().await else { return };
    std::fs::remove_file(host.network.conf_dir.join("10-test.conflist")).unwrap();
    let _behind = Behind::start();
    let line = "ping -c 1 -W 60 198.51.100.2";
    let output = host.podvisor(&["run", "--rm", &host.busybox(), "sh", "-c", line]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rules = Command::new("iptables").args(["-S", "CNI-FORWARD"]).output().unwrap();
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    assert!(rules.contains("CNI-FORWARD") && !rules.contains("10.87."), "{rules}");
    host.stop().await.unwrap();
}
