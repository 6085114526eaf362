//! Whole pods' networks with the real bridge, host-local and portmap plugins.

use std::{
    fs,
    io::Read,
    net::{IpAddr, UdpSocket},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::mount::{MsFlags, mount};
use runtime_net::{NetError, PodNetworkSpec};

use crate::node::{Guest, Node, PATIENCE, on_a_node, run, spec, until};

fn ethernet(to: &[u8], from: &[u8], kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [to, from, &kind, payload].concat()
}

/// The one's-complement sum of the Internet protocols.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let mut sum: u32 =
        bytes.chunks(2).map(|c| (u32::from(c[0]) << 8) | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Answers the host's ARP request for `ip`, as the guest's kernel would.
fn answer_arp(guest: &mut Guest, ip: [u8; 4]) {
    let mac = guest.mac;
    let ask = guest.receive("ARP request", |f| f[12..14] == [8, 6] && f[20..22] == [0, 1] && f[38..42] == ip);
    let reply = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &ip, &ask[22..32]].concat();
    guest.send(&ethernet(&ask[6..12], &mac, [8, 6], &reply));
}

/// Answers the host's neighbour solicitation for `ip`.
fn answer_solicitation(guest: &mut Guest, ip: [u8; 16]) {
    let mac = guest.mac;
    let solicits = |f: &[u8]| f[12..14] == [0x86, 0xdd] && f[20] == 58 && f[54] == 135;
    // The host's own probe for a duplicate comes from the unspecified address, and wants no answer.
    let ask =
        guest.receive("neighbour solicitation", |f| solicits(f) && f[62..78] == ip && f[22..38] != [0; 16]);
    let mut reply = [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &ip, &[2, 1], &mac].concat();
    let length = (reply.len() as u16).to_be_bytes();
    let sum = checksum(&[&ip, &ask[22..38], &[0, 0], &length, &[0, 0, 0, 58], &reply]);
    reply[2..4].copy_from_slice(&sum);
    let packet = [&[0x60, 0, 0, 0], &length[..], &[58, 255], &ip, &ask[22..38], &reply].concat();
    guest.send(&ethernet(&ask[6..12], &mac, [0x86, 0xdd], &packet));
}

/// Sends a UDP packet back to its source. Both checksums stay valid: swapping the parts does not change the
/// sums.
fn echo_udp(guest: &mut Guest) {
    let udp = |f: &[u8]| match f[12..14] {
        [8, 0] => f[23] == 17,
        [0x86, 0xdd] => f[20] == 17,
        _ => false,
    };
    let mut frame = guest.receive("UDP packet", udp);
    let (addresses, length, ports) = if frame[12] == 8 { (26, 4, 34) } else { (22, 16, 54) };
    for (at, length) in [(0, 6), (addresses, length), (ports, 2)] {
        let (first, second) = frame[at..at + 2 * length].split_at_mut(length);
        first.swap_with_slice(second);
    }
    guest.send(&frame);
}

/// Sends a packet from the host to port 7 of `ip` and returns whether the same came back.
fn ping(ip: IpAddr, patience: Duration) -> thread::JoinHandle<std::io::Result<bool>> {
    // The thread inherits this one's namespaces.
    thread::spawn(move || {
        let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(patience))?;
        socket.connect((ip, 7))?;
        socket.send(b"is anybody there?")?;
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer)?;
        Ok(&buffer[..length] == b"is anybody there?")
    })
}

#[test]
fn frames_go_both_ways_between_host_and_guest_and_nothing_is_left_after_teardown() {
    on_a_node(async |node| {
        node.configure("");
        node.cni.ready().unwrap();
        let network = node.cni.setup(&spec()).await.unwrap();

        let eth0 = &network.interfaces[0];
        assert_eq!((eth0.name.as_str(), eth0.mtu), ("eth0", 1400));
        assert_eq!(eth0.addresses.len(), 2, "{eth0:?}");
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (network.ips[0], network.ips[1]) else {
            panic!("{:?}", network.ips)
        };
        assert!(eth0.addresses.contains(&format!("{v4}/24")), "{eth0:?}");
        assert!(eth0.addresses.contains(&format!("{v6}/64")), "{eth0:?}");
        let route = |to: &str| network.routes.iter().find(|route| route.destination == to);
        assert_eq!(route("0.0.0.0/0").unwrap().gateway, "10.88.0.1", "{:?}", network.routes);
        assert_eq!(route("::/0").unwrap().gateway, "fd00:88::1", "{:?}", network.routes);
        assert_eq!(route("10.88.0.0/24").unwrap().scope, 253, "{:?}", network.routes);

        let mut guest = Guest::new(&network);
        let pinged = ping(v4.into(), PATIENCE);
        answer_arp(&mut guest, v4.octets());
        echo_udp(&mut guest);
        assert!(pinged.join().unwrap().unwrap(), "IPv4 came back changed");
        // Until the bridge's own address is known to be no duplicate, the host sends from ::1.
        until("the bridge has its address", || run("ip", "-6 -o addr show dev cni0 tentative").is_empty());
        let pinged = ping(v6.into(), PATIENCE);
        answer_solicitation(&mut guest, v6.octets());
        echo_udp(&mut guest);
        assert!(pinged.join().unwrap().unwrap(), "IPv6 came back changed");
        assert!(run("iptables", "-t nat -S").contains("8080"), "no rule for the host port");
        let traces = node.left_over().join("\n");
        for trace in ["netns/podvisor-p1", "p1-eth0.json", "10.88.0.2", "veth", "CNI-DN-", "id: \\\"p1\\\""] {
            assert!(traces.contains(trace), "{trace} is not among\n{traces}");
        }

        drop((guest, network));
        node.cni.teardown(&spec()).await.unwrap();
        assert_eq!(node.left_over(), Vec::<String>::new());
        node.cni.teardown(&spec()).await.unwrap();
    });
}

#[test]
fn nobody_but_the_guest_answers_for_the_pods_address() {
    on_a_node(async |node| {
        node.configure("");
        let network = node.cni.setup(&spec()).await.unwrap();
        let IpAddr::V4(ip) = network.ips[0] else { panic!("{:?}", network.ips) };
        let unanswered = ping(ip.into(), Duration::from_secs(4));
        let mut guest = Guest::new(&network);
        guest.receive("ARP request", |f| f[12..14] == [8, 6] && f[38..42] == ip.octets());
        // The guest stays silent, so the host's kernel must give up.
        until("the host gives up", || run("ip", "-4 neigh show dev cni0").contains("FAILED"));
        assert!(unanswered.join().unwrap().is_err(), "somebody answered in the guest's place");
    });
}

#[test]
fn a_namespace_can_still_be_removed_after_ip_netns_was_used() {
    on_a_node(async |node| {
        node.configure("");
        // ip netns knows one folder only: a private one, on this node's own /run.
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let cni = Node::cni(node.dir.path(), "/run/netns".into());
        drop(cni.setup(&spec()).await.unwrap());
        run("ip", "netns add other");
        cni.teardown(&spec()).await.unwrap();
        assert!(!Path::new("/run/netns/podvisor-p1").exists());
        run("ip", "netns delete other");
    });
}

#[test]
fn teardown_goes_by_what_was_added_even_when_the_configuration_has_gone() {
    on_a_node(async |node| {
        node.configure("");
        drop(node.cni.setup(&spec()).await.unwrap());
        fs::remove_file(node.dir.path().join("net.d/10-net.conflist")).unwrap();
        let only_the_id = PodNetworkSpec { pod_id: "p1".into(), ..Default::default() };
        node.cni.teardown(&only_the_id).await.unwrap();
        assert_eq!(node.left_over(), Vec::<String>::new());
    });
}

#[test]
fn a_namespace_that_has_gone_does_not_stop_teardown() {
    on_a_node(async |node| {
        node.configure("");
        drop(node.cni.setup(&spec()).await.unwrap());
        let netns = node.dir.path().join("netns/podvisor-p1");
        nix::mount::umount(&netns).unwrap();
        fs::remove_file(&netns).unwrap();
        node.cni.teardown(&spec()).await.unwrap();
        // Links are removed with the namespace, in the kernel's own time, and bridge finds its masquerade
        // rules by addresses already gone. Only files are sure to be gone.
        let files: Vec<_> = node.left_over().into_iter().filter(|left| left.starts_with('/')).collect();
        assert_eq!(files, Vec::<String>::new());
    });
}

#[test]
fn a_pod_gets_a_namespace_that_waited_and_nothing_of_it_is_left() {
    on_a_node(async |node| {
        node.configure("");
        assert!(node.cni.make_spare().await.unwrap());
        assert!(!node.cni.make_spare().await.unwrap(), "one is enough");
        assert_eq!((node.cni.spares(), node.left_over()), (1, Vec::new()), "it has no name yet");
        let network = node.cni.setup(&spec()).await.unwrap();
        assert_eq!((node.cni.spares(), network.interfaces.len(), network.ips.len()), (0, 1, 2));
        node.cni.teardown(&spec()).await.unwrap();
        drop(network);
        until("nothing is left", || node.left_over().is_empty());

        // A used name is refused and stays with its owner.
        assert!(node.cni.make_spare().await.unwrap());
        let taken = node.dir.path().join("netns/podvisor-p1");
        fs::write(&taken, "").unwrap();
        node.cni.setup(&spec()).await.unwrap_err();
        assert!(taken.exists());
        fs::remove_file(&taken).unwrap();
    });
}

#[test]
fn a_failed_setup_undoes_what_came_before() {
    on_a_node(async |node| {
        fs::write(node.dir.path().join("net.d/00-broken.conflist"), "{").unwrap();
        node.configure(r#",{"type":"tuning","sysctl":{"net.ipv4.conf.nosuch.forwarding":"1"}}"#);
        let error = node.cni.setup(&spec()).await.unwrap_err();
        assert!(matches!(&error, NetError::Plugin { plugin, .. } if plugin == "tuning"), "{error:?}");
        assert_eq!(node.left_over(), Vec::<String>::new());
    });
}

#[test]
fn a_pod_without_an_address_is_refused_and_undone() {
    on_a_node(async |node| {
        node.install("forgetful", r#"[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0"}'"#);
        node.configure(r#",{"type":"forgetful"}"#);
        let error = node.cni.setup(&spec()).await.unwrap_err();
        assert!(
            matches!(&error, NetError::PluginAnswer { plugin, .. } if plugin == "forgetful"),
            "{error:?}"
        );
        assert_eq!(node.left_over(), Vec::<String>::new());
    });
}

/// A killed daemon leaves its plugin running. If DEL came first, the ADD would still keep an address.
#[test]
fn a_plugin_that_a_killed_daemon_left_in_its_add_is_ended_before_del() {
    on_a_node(async |node| {
        let dir = node.dir.path();
        let script = r#"cd "${0%/*}"
if [ "$CNI_COMMAND" = DEL ]; then rm -f lease; echo >> deleted; exit; fi
echo started; until [ -e deleted ]; do sleep 0.05; done; touch lease"#;
        node.install("slow", script);
        node.write_network(r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"slow"}]}"#);
        fs::create_dir(dir.join("netns")).unwrap();
        let netns = dir.join("netns/podvisor-p1");
        fs::write(&netns, "").unwrap();
        run("unshare", &format!("--net={} true", netns.display()));
        let mut add = Command::new(dir.join("bin/slow"));
        add.env("CNI_COMMAND", "ADD").env("CNI_NETNS", &netns).process_group(0).stdout(Stdio::piped());
        let mut add = add.spawn().unwrap();
        add.stdout.take().unwrap().read_exact(&mut [0; 8]).unwrap();

        node.cni.teardown(&spec()).await.unwrap();
        add.wait().unwrap();
        assert!(dir.join("bin/deleted").exists() && !dir.join("bin/lease").exists());
    });
}

#[test]
fn real_plugins_make_a_pods_network_in_every_version() {
    on_a_node(async |node| {
        for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"] {
            let version =
                if version.is_empty() { String::new() } else { format!(r#""cniVersion":"{version}","#) };
            node.write_network(&format!(
                r#"{{{version}"name":"net","plugins":[{{"type":"bridge","bridge":"cni0","isGateway":true,
                   "ipam":{{"type":"host-local","dataDir":"{}","subnet":"10.88.0.0/24","routes":[{{"dst":"0.0.0.0/0"}}]}}}}]}}"#,
                node.leases().display()
            ));
            node.cni.status().await.unwrap();
            let spec = PodNetworkSpec { port_mappings: Vec::new(), ..spec() };
            let network = node.cni.setup(&spec).await.unwrap();
            assert_eq!((network.interfaces.len(), network.ips.len()), (1, 1), "{version}");
            let address = format!("{}/24", network.ips[0]);
            assert_eq!(network.interfaces[0].addresses, [address], "{version}");
            drop(network);
            node.cni.teardown(&spec).await.unwrap();
            assert_eq!(node.left_over(), Vec::<String>::new(), "{version}");
        }
    });
}
