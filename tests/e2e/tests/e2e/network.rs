//! The pod's network, from the host and from inside.

use proto_cri::v1;
use tests_e2e::wait::until;
use tests_e2e::{Host, http, spec};

use crate::settings::host_with;

#[tokio::test]
async fn a_pod_answers_on_its_address_and_on_its_host_ports_of_tcp_and_udp() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("web", host.dir());
    config.port_mappings = vec![
        v1::PortMapping { container_port: 80, host_port: 12_080, ..Default::default() },
        v1::PortMapping {
            protocol: v1::Protocol::Udp.into(),
            container_port: 53,
            host_port: 12_053,
            ..Default::default()
        },
        // No host port: the pod only declares its port.
        v1::PortMapping { container_port: 8080, ..Default::default() },
    ];
    let pod = client.run_pod(&config).await.unwrap();
    let line = "mkdir /www; echo hello > /www/index.html; exec busybox httpd -f -p 80 -h /www";
    let web = client.run(&pod, spec::shell("web", &image, line)).await.unwrap();
    let ip = client.pod_ip(&pod).await.unwrap();
    assert_eq!(http::get(&ip, 80).await.unwrap(), "hello\n");
    assert_eq!(http::ask("127.0.0.1", 12_080, "/").await.unwrap(), "hello\n");
    // No program listens at the pod's UDP port: its kernel's counter shows that the datagram came.
    let unheard = "awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp";
    assert_eq!(client.sh(&web, unheard).await.unwrap(), "0\n");
    until("a datagram to come through", async || {
        send_datagram("127.0.0.1:12053").await.unwrap();
        client.sh(&web, unheard).await.unwrap() != "0\n"
    })
    .await;
    let bridge = std::fs::read_to_string(format!("/sys/class/net/{}/mtu", host.network.bridge)).unwrap();
    assert_eq!(bridge.trim(), "1500");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn two_pods_reach_each_other_over_both_families() {
    let Some(host) = Host::start().await else { return };
    one_pod_pings_another(&host).await;
    host.stop().await.unwrap();
}

/// The plugin ptp gives each pod a link of its own to the node. Pods of one node reach each other through the
/// node alone.
#[tokio::test]
async fn two_pods_reach_each_other_over_point_to_point_links() {
    let Some(host) = Host::start().await else { return };
    let mut network = conflist(&host);
    network["plugins"][0]["type"] = "ptp".into();
    host.network.configure(&network).unwrap();
    one_pod_pings_another(&host).await;
    host.stop().await.unwrap();
}

/// The network's configuration, to be changed.
fn conflist(host: &Host) -> serde_json::Value {
    let file = host.network.conf_dir.join("10-test.conflist");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

async fn one_pod_pings_another(host: &Host) {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let server = client.run_pod(&spec::pod("server", host.dir())).await.unwrap();
    let guest = client.run_pod(&spec::pod("guest", host.dir())).await.unwrap();
    client.run(&server, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let pinger = client.run(&guest, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let network = client.pod_status(&server).await.unwrap().network.unwrap();
    assert_eq!(network.additional_ips.len(), 1, "dual stack: {network:?}");
    for ip in [&network.ip, &network.additional_ips[0].ip] {
        let answer = client.exec(&pinger, &["ping", "-c", "1", "-w", "300", ip], 600).await.unwrap();
        assert_eq!(answer.exit_code, 0, "{ip}: {}", String::from_utf8_lossy(&answer.stdout));
    }
    for pod in [server, guest] {
        client.remove_pod(&pod).await.unwrap();
    }
}

/// A second interface in the subnet of the first one, as Multus makes it.
const SECOND_INTERFACE: &str = "
ip link add net1 type veth peer name behind
ip link set behind up
ip link set net1 up
ip addr add $(ip -4 -o addr show eth0 | awk '{ print $4 }' | sed 's,[.][0-9]*/,.200/,') dev net1
ip addr add $(ip -6 -o addr show eth0 scope global | awk '{ print $4 }' | sed 's,::.*/,::200/,') dev net1 nodad
";

#[tokio::test]
async fn a_pod_with_two_interfaces_in_one_subnet_goes_out_through_the_first() {
    let Some(host) = host_with(SECOND_INTERFACE, "replay").await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("two", host.dir())).await.unwrap();
    let main = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let names = client.sh(&main, "ls /sys/class/net").await.unwrap();
    assert!(names.contains("eth0") && names.contains("net1"), "{names}");
    for family in ["-4", "-6"] {
        let routes = client.sh(&main, &format!("ip {family} route")).await.unwrap();
        let default = routes.lines().find(|line| line.starts_with("default")).unwrap();
        assert!(default.contains("dev eth0"), "{routes}");
        let gateway = default.split(' ').nth(2).unwrap();
        let answer = client.exec(&main, &["ping", "-c", "1", "-w", "300", gateway], 600).await.unwrap();
        assert_eq!(answer.exit_code, 0, "{gateway}: {}", String::from_utf8_lossy(&answer.stdout));
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_pods_files_name_its_servers_and_itself() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("names", host.dir());
    config.dns_config = Some(v1::DnsConfig {
        servers: vec!["10.10.10.10".into()],
        searches: vec!["example.com".into()],
        options: vec!["ndots:8".into()],
    });
    let pod = client.run_pod(&config).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let resolv = client.sh(&container, "cat /etc/resolv.conf").await.unwrap();
    for line in ["nameserver 10.10.10.10", "search example.com", "options ndots:8"] {
        assert!(resolv.lines().any(|found| found == line), "{resolv}");
    }
    assert_eq!(client.sh(&container, "hostname; cat /etc/hostname").await.unwrap(), "names\nnames\n");
    assert!(client.sh(&container, "cat /etc/hosts").await.unwrap().contains("localhost"));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

async fn send_datagram(to: &str) -> std::io::Result<()> {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
    socket.send_to(b"hello", to).await.map(drop)
}
