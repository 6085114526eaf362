//! Pods' networks with links of other plugins than bridge: ptp, macvlan, host-device.

use std::{fs::File, net::UdpSocket, os::fd::OwnedFd, path::Path, process::Command};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

use crate::node::{Guest, PATIENCE, on_a_node, run, spec, until};

/// Only the guest joins groups. A macvlan drops frames to groups that nobody joined on it.
#[test]
fn frames_to_a_group_reach_the_guest_through_a_macvlan() {
    on_a_node(async |node| {
        run("ip", "link add dev up0 type veth peer name down0");
        let trial = "link add dev trial link up0 type macvlan mode bridge";
        if !Command::new("ip").args(trial.split(' ')).status().unwrap().success() {
            eprintln!("skipped: needs a kernel with macvlan");
            return;
        }
        for link in ["up0", "down0"] {
            run("ip", &format!("link set dev {link} up"));
        }
        run("ip", "addr add 10.90.0.1/24 dev down0");
        run("ip", "route add 224.0.0.0/4 dev down0");
        until("the sender's link is up", || run("ip", "-o link show dev down0").contains("state UP"));
        node.write_network(&format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"macvlan","master":"up0",
               "ipam":{{"type":"host-local","dataDir":"{}","subnet":"10.90.0.0/24","rangeStart":"10.90.0.5"}}}}]}}"#,
            node.leases().display()
        ));
        let network = node.cni.setup(&spec()).await.unwrap();
        let mut guest = Guest::new(&network);
        UdpSocket::bind("10.90.0.1:0").unwrap().send_to(b"who is there?", "224.0.0.251:5353").unwrap();
        guest.receive("frame to the group", |f| f[..6] == [1, 0, 0x5e, 0, 0, 0xfb]);
        drop((guest, network));
        node.cni.teardown(&spec()).await.unwrap();
    });
}

/// A plugin keeps the lease from inside the namespace (`"ipam": {"type": "dhcp"}`). Its packet socket is
/// behind the redirect.
#[test]
fn answers_of_a_dhcp_server_reach_guest_and_namespace_and_nothing_else_does() {
    on_a_node(async |node| {
        node.configure("");
        let network = node.cni.setup(&spec()).await.unwrap();
        let mut guest = Guest::new(&network);
        let path = node.dir.path().join("netns/podvisor-p1");
        let lease = lease_socket(&path);
        let server = UdpSocket::bind("10.88.0.1:67").unwrap();
        server.set_broadcast(true).unwrap();
        server.send_to(b"a request of another", "10.88.0.255:69").unwrap();
        server.send_to(b"here is your lease", "10.88.0.255:68").unwrap();
        guest.receive("broadcast", |frame| frame.ends_with(b"a request of another"));
        guest.receive("answer", |frame| frame.ends_with(b"here is your lease"));
        let mut bytes = [0; 1500];
        let count = nix::unistd::read(&lease, &mut bytes).unwrap();
        assert!(bytes[..count].ends_with(b"here is your lease"), "{:?}", &bytes[..count]);
        drop((guest, network));
        node.cni.teardown(&spec()).await.unwrap();
    });
}

/// A socket for the namespace's IPv4 packets, as a DHCP client has one. It waits for a packet with a bound.
fn lease_socket(netns: &Path) -> OwnedFd {
    let netns = File::open(netns).unwrap();
    let made = std::thread::spawn(move || {
        setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
        let (kind, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
        socket(AddressFamily::Packet, kind, flags, SockProtocol::EthIp).unwrap()
    });
    let socket = made.join().unwrap();
    let patience = TimeVal::seconds(i64::try_from(PATIENCE.as_secs()).unwrap());
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience).unwrap();
    socket
}

#[test]
fn a_link_of_the_node_lent_to_a_pod_comes_back_as_it_was() {
    for before in ["off", "on"] {
        on_a_node(async move |node| {
            run("ip", "link add dev nic0 type veth peer name far0");
            run("ip", "link set dev far0 up");
            run("ip", &format!("link set dev nic0 allmulticast {before}"));
            node.write_network(&format!(
                r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"host-device","device":"nic0",
                   "ipam":{{"type":"host-local","dataDir":"{}","subnet":"10.91.0.0/24"}}}}]}}"#,
                node.leases().display()
            ));
            let network = node.cni.setup(&spec()).await.unwrap();
            assert_eq!(network.interfaces[0].name, "eth0");
            let netns = node.dir.path().join("netns/podvisor-p1");
            let eth0 = run("nsenter", &format!("--net={} ip -o link show dev eth0", netns.display()));
            assert!(eth0.contains("ALLMULTI"), "{eth0}");
            drop(network);
            node.cni.teardown(&spec()).await.unwrap();
            let nic0 = run("ip", "-o link show dev nic0");
            assert_eq!(nic0.contains("ALLMULTI"), before == "on", "{nic0}");
        });
    }
}

#[test]
fn routes_that_a_plugin_put_in_place_of_the_kernels_are_reported_as_they_are() {
    on_a_node(async |node| {
        node.write_network(&format!(
            r#"{{"cniVersion":"0.4.0","name":"net","plugins":[{{"type":"ptp","ipam":{{"type":"host-local",
               "dataDir":"{}","subnet":"10.89.0.0/24","routes":[{{"dst":"0.0.0.0/0"}}]}}}}]}}"#,
            node.leases().display()
        ));
        let network = node.cni.setup(&spec()).await.unwrap();
        let routes: Vec<_> = network
            .routes
            .iter()
            .map(|route| (route.destination.as_str(), route.gateway.as_str(), route.scope))
            .collect();
        // The gateway is reached over the link, and everybody else in the subnet through the gateway.
        assert_eq!(routes.len(), 3, "{routes:?}");
        assert_eq!(routes[0], ("10.89.0.1/32", "", 253), "{routes:?}");
        assert!(routes.contains(&("10.89.0.0/24", "10.89.0.1", 0)), "{routes:?}");
        assert!(routes.contains(&("0.0.0.0/0", "10.89.0.1", 0)), "{routes:?}");
        assert!(network.routes.iter().all(|route| route.interface == "eth0"));
    });
}
