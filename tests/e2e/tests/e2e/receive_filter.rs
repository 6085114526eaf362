//! The receive filter of a pod's interface: selects the frames of the node's bridge for the guest.
//!
//! Frames come from the node and are counted in the guest, in their order. The last frames sent are large, so
//! the guest's received bytes show the end of them all.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};

/// Number of frames of one kind sent at a time: many more than the network's own traffic meanwhile.
const FRAMES: u64 = 60;

/// Content of the tested frames, and of the large ones. The large ones still fit the bridge.
const SMALL: &[u8] = b"hello";
const LARGE: &[u8] = &[b'x'; 1400];

/// Nothing listens there.
const PORT: u16 = 9;

/// A group of every IPv6 host.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The groups of hosts with addresses ending in 34:5678 and 99:8888.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff34, 0x5678);
const OTHER_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff99, 0x8888);

/// A container with its guest's frame counters.
struct Guest {
    client: Client,
    container: String,
    /// The bridge's number on the node.
    bridge: u32,
}

impl Guest {
    /// Bytes and frames received by the guest.
    async fn received(&mut self) -> (u64, u64) {
        let line = "awk '/eth0:/ { print $2, $3 }' /proc/net/dev";
        let counts = self.client.sh(&self.container, line).await.unwrap();
        let (bytes, frames) = counts.trim().split_once(' ').unwrap();
        (bytes.parse().unwrap(), frames.parse().unwrap())
    }

    async fn sh(&mut self, line: &str) {
        let answer = self.client.exec(&self.container, &["sh", "-c", line], 600).await.unwrap();
        assert_eq!(answer.exit_code, 0, "{line}: {}", String::from_utf8_lossy(&answer.stderr));
    }

    fn group(&self, group: Ipv6Addr) -> SocketAddr {
        SocketAddrV6::new(group, PORT, 0, self.bridge).into()
    }

    /// Sends frames to an address of the bridge, then as many large ones, certain to reach the guest. Returns
    /// true if the first ones reached it, too.
    async fn receives(&mut self, to: SocketAddr) -> bool {
        let (bytes_before, frames_before) = self.received().await;
        send(to, SMALL);
        send(self.group(ALL_NODES), LARGE);
        let frames = until_seen("frames to all nodes", async || {
            let (bytes, frames) = self.received().await;
            let came = (bytes - bytes_before, frames - frames_before);
            // All large ones but the last two or three at the most, and so all small ones.
            if came.0 >= FRAMES * LARGE.len() as u64 { Ok(came.1) } else { Err(came) }
        });
        frames.await >= FRAMES + FRAMES / 2
    }

    /// Tries until frames to `to` come, or come no more: a guest sets its filter a little later than it
    /// joins.
    async fn comes_to_receive(&mut self, to: SocketAddr, wanted: bool) {
        let event = format!("frames to {to} to be received: {wanted}");
        until(event, async || self.receives(to).await == wanted).await;
    }
}

fn send(to: SocketAddr, content: &[u8]) {
    let any: SocketAddr =
        if to.is_ipv6() { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_broadcast(true).unwrap();
    for _ in 0..FRAMES {
        socket.send_to(content, to).unwrap();
    }
}

async fn run(host: &Host, name: &str, image: &str) -> (String, Guest) {
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
    let mut config = spec::container("main", image, &["sleep", "3600"]);
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    let added = vec!["NET_ADMIN".into()];
    context.capabilities = Some(v1::Capability { add_capabilities: added, ..Default::default() });
    let container = client.run(&pod, config).await.unwrap();
    let bridge = nix::net::if_::if_nametoindex(host.network.bridge.as_str()).unwrap();
    (pod, Guest { client, container, bridge })
}

#[tokio::test]
async fn a_guest_gets_frames_to_itself_to_all_and_to_its_groups_and_no_others() {
    let Some(host) = Host::start().await else { return };
    let image = host.client().pull(&host.busybox()).await.unwrap();
    let (pod, mut guest) = run(&host, "receiver", &image).await;
    let ip: Ipv4Addr = guest.client.pod_ip(&pod).await.unwrap().parse().unwrap();
    let [a, b, c, _] = ip.octets();
    let broadcast = SocketAddr::from(([a, b, c, 255], PORT));
    let (group, other) = (guest.group(GROUP), guest.group(OTHER_GROUP));

    guest.comes_to_receive(group, false).await;
    assert!(guest.receives(broadcast).await);
    // A further address is a further group.
    guest.sh("ip -6 addr add fd12::1234:5678/64 dev eth0").await;
    guest.comes_to_receive(group, true).await;
    assert!(!guest.receives(other).await);
    guest.sh("ip link set eth0 promisc on").await;
    guest.comes_to_receive(other, true).await;
    guest.sh("ip link set eth0 promisc off").await;
    guest.comes_to_receive(other, false).await;
    guest.sh("ip -6 addr del fd12::1234:5678/64 dev eth0").await;
    guest.comes_to_receive(group, false).await;

    guest.client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn pods_find_each_other_through_their_filters_even_under_another_address() {
    let Some(host) = Host::start().await else { return };
    let image = host.client().pull(&host.busybox()).await.unwrap();
    let (pod, mut guest) = run(&host, "receiver", &image).await;
    let (other_pod, mut other) = run(&host, "other", &image).await;
    let group = guest.group(GROUP);
    guest.comes_to_receive(group, false).await;
    let network = guest.client.pod_status(&pod).await.unwrap().network.unwrap();
    let addresses = [network.ip, network.additional_ips[0].ip.clone()];
    for ip in &addresses {
        other.sh(&format!("ping -c 1 -w 300 {ip}")).await;
    }
    // The others' caches are cleared, as if expired.
    guest.sh("ip link set eth0 address 02:00:00:00:00:77").await;
    other.sh("ip neigh flush dev eth0").await;
    for ip in &addresses {
        other.sh(&format!("ping -c 1 -w 300 {ip}")).await;
    }
    assert!(!guest.receives(group).await, "the filter is still there");

    for pod in [pod, other_pod] {
        guest.client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}
