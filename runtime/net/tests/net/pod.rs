//! Whole pods' networks with the real bridge, host-local and portmap plugins, in namespaces of the test's
//! own. Needs root and the plugins; says so and passes without.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use runtime_net::{Cni, CniConfig, NetError, PodNetwork, PodNetworkSpec};
use runtime_spec::{PortMapping, Protocol};

const PLUGIN_DIR: &str = "/usr/lib/cni";
const HEADER_BYTES: usize = 12;
/// Most time to wait for an immediate event.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `test` on a thread acting as a node, with its own network and mount namespaces.
fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F + Send + 'static) {
    let plugins = ["bridge", "host-local", "portmap"].map(|plugin| Path::new(PLUGIN_DIR).join(plugin));
    if !nix::unistd::geteuid().is_root() || !plugins.iter().all(|plugin| plugin.exists()) {
        eprintln!("skipped: needs root and the CNI plugins in {PLUGIN_DIR}");
        return;
    }
    let node = move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        run("ip", "link set lo up");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(Node::new()));
    };
    thread::spawn(node).join().unwrap();
}

struct Node {
    dir: tempfile::TempDir,
    cni: Cni,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net.d")).unwrap();
        let cni = Self::cni(dir.path(), dir.path().join("netns"));
        Self { dir, cni }
    }

    fn cni(dir: &Path, netns_dir: PathBuf) -> Cni {
        Cni::new(CniConfig {
            conf_dir: dir.join("net.d"),
            bin_dirs: vec![PLUGIN_DIR.into()],
            cache_dir: dir.join("cache"),
            netns_dir,
            // A software node under load is very slow.
            plugin_time_max: Duration::from_secs(600),
            spares_max: 1,
            ..CniConfig::default()
        })
    }

    fn write_network(&self, text: &str) {
        fs::write(self.dir.path().join("net.d/10-net.conflist"), text).unwrap();
    }

    fn configure(&self, extra_plugin: &str) {
        let leases = self.leases();
        let text = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[
              {{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,"mtu":1400,
                "ipam":{{"type":"host-local","dataDir":"{}",
                  "ranges":[[{{"subnet":"10.88.0.0/24"}}],[{{"subnet":"fd00:88::/64"}}]],
                  "routes":[{{"dst":"0.0.0.0/0"}},{{"dst":"::/0"}}]}}}},
              {{"type":"portmap","capabilities":{{"portMappings":true}}}}{extra_plugin}]}}"#,
            leases.display()
        );
        self.write_network(&text);
    }

    fn leases(&self) -> PathBuf {
        self.dir.path().join("leases")
    }

    /// Everything of a pod left on this node, without the bridge.
    fn left_over(&self) -> Vec<String> {
        let mut left = Vec::new();
        for dir in
            [self.dir.path().join("netns"), self.dir.path().join("cache/podvisor"), self.leases().join("net")]
        {
            for entry in fs::read_dir(&dir).into_iter().flatten() {
                let name = entry.unwrap().file_name().to_string_lossy().into_owned();
                if name != "lock" && !name.starts_with("last_reserved_ip") {
                    left.push(format!("{}/{name}", dir.display()));
                }
            }
        }
        left.extend(run("ip", "-o link").lines().filter(|l| l.contains("veth")).map(str::to_owned));
        for tables in ["iptables", "ip6tables"] {
            let rules = run(tables, "-t nat -S");
            left.extend(
                rules.lines().filter(|l| l.contains("p1") || l.contains("CNI-DN-")).map(str::to_owned),
            );
        }
        left
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The namespaces' folder is a mount; the temporary folder could not be removed around it.
        let _ = nix::mount::umount2(&self.dir.path().join("netns"), nix::mount::MntFlags::MNT_DETACH);
    }
}

fn spec() -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: "p1".into(),
        name: "web".into(),
        namespace: "shop".into(),
        uid: "u1".into(),
        port_mappings: vec![PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: Protocol::Tcp,
            host_ip: String::new(),
        }],
        ..Default::default()
    }
}

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn until(what: &str, true_now: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !true_now() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The guest's end of the pod's tap.
struct Guest {
    tap: File,
    mac: [u8; 6],
}

impl Guest {
    fn new(network: &PodNetwork) -> Self {
        let interface = &network.interfaces[0];
        Self { tap: interface.tap.try_clone().unwrap().into(), mac: interface.mac }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut packet = vec![0; HEADER_BYTES];
        packet.extend_from_slice(frame);
        self.tap.write_all(&packet).unwrap();
    }

    /// The next frame accepted by `wanted`.
    fn receive(&mut self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut buffer = vec![0; 65536];
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match self.tap.read(&mut buffer) {
                Ok(length) if wanted(&buffer[HEADER_BYTES..length]) => {
                    return buffer[HEADER_BYTES..length].to_vec();
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("reading the tap: {error}"),
            }
        }
        panic!("no {what} reached the guest");
    }
}

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

#[test]
fn a_link_of_the_node_lent_to_a_pod_comes_back_as_it_was() {
    on_a_node(async |node| {
        run("ip", "link add dev nic0 type veth peer name far0");
        run("ip", "link set dev far0 up");
        node.write_network(&format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"host-device","device":"nic0",
               "ipam":{{"type":"host-local","dataDir":"{}","subnet":"10.91.0.0/24"}}}}]}}"#,
            node.leases().display()
        ));
        let network = node.cni.setup(&spec()).await.unwrap();
        assert_eq!(network.interfaces[0].name, "eth0");
        let eth0 = format!("--net={}/netns/podvisor-p1 ip -o link show dev eth0", node.dir.path().display());
        assert!(run("nsenter", &eth0).contains("ALLMULTI"), "{}", run("nsenter", &eth0));
        drop(network);
        node.cni.teardown(&spec()).await.unwrap();
        let nic0 = run("ip", "-o link show dev nic0");
        assert!(!nic0.contains("ALLMULTI"), "{nic0}");
    });
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
