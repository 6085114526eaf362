//! Settings left by plugins in a real namespace of a pod, found there and recreated in another one. Needs
//! root, the CNI plugins, nft and ip. Prints a note and passes without them.

use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt,
        socket, sockopt,
    },
};
use runtime_net::{Cni, CniConfig, NetError, PodNetwork, PodNetworkSpec, PodSettings, SettingsPolicy};

const PLUGIN_DIR: &str = "/usr/lib/cni";

/// A node on a thread with its own namespaces. Its network has bridge, portmap and a script called `mesh`.
struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// Runs `test` on a node. Its `mesh` runs these commands at ADD, inside the pod's namespace.
    fn with<F: Future<Output = ()>>(commands: &str, test: impl FnOnce(Node) -> F + Send + 'static) {
        let programs = ["nft", "ip", "tc", "nsenter", "iptables-nft"];
        let found = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let plugins = ["bridge", "host-local", "portmap"].map(|name| Path::new(PLUGIN_DIR).join(name));
        if !nix::unistd::geteuid().is_root()
            || !plugins.iter().all(|plugin| plugin.exists())
            || !programs.iter().all(found)
        {
            eprintln!("skipped: needs root, the CNI plugins in {PLUGIN_DIR}, and {programs:?}");
            return;
        }
        let commands = commands.to_owned();
        let node = move || {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(test(Node::new(&commands)));
        };
        thread::spawn(node).join().unwrap();
    }

    fn new(commands: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        for name in ["net.d", "bin"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let node = Node { dir };
        // The plugin returns its previous result. The keys of its input are in alphabetical order.
        let script = format!(
            "#!/bin/sh\nset -e\ninput=$(cat)\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\n\
             nsenter --net=\"$CNI_NETNS\" sh -e <<'END' >&2\n{commands}\nEND\n\
             printf '%s' \"$input\" | sed 's/.*\"prevResult\":\\(.*\\),\"type\":\"mesh\"}}$/\\1/'\n"
        );
        node.install("mesh", &script);
        let network = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[
              {{"type":"bridge","bridge":"cni0","isGateway":true,"hairpinMode":true,"mtu":1400,
                "ipam":{{"type":"host-local","dataDir":"{}",
                  "ranges":[[{{"subnet":"10.88.0.0/24"}}],[{{"subnet":"fd00:88::/64"}}]],
                  "routes":[{{"dst":"0.0.0.0/0"}},{{"dst":"::/0"}}]}}}},
              {{"type":"portmap","capabilities":{{"portMappings":true}}}},
              {{"type":"mesh"}}]}}"#,
            node.path("leases").display()
        );
        fs::write(node.path("net.d/10-net.conflist"), network).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn install(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    async fn setup(&self, settings: SettingsPolicy) -> Result<PodNetwork, NetError> {
        self.setup_named("p1", settings).await
    }

    async fn setup_named(&self, pod_id: &str, settings: SettingsPolicy) -> Result<PodNetwork, NetError> {
        self.cni(settings).setup(&spec(pod_id)).await
    }

    fn cni(&self, settings: SettingsPolicy) -> Cni {
        Cni::new(CniConfig {
            conf_dir: self.path("net.d"),
            bin_dirs: vec![self.path("bin"), PLUGIN_DIR.into()],
            cache_dir: self.path("cache"),
            netns_dir: self.path("netns"),
            // A software node under load is very slow.
            plugin_time_max: Duration::from_secs(600),
            settings,
            spares_max: 1,
            ..CniConfig::default()
        })
    }
}

fn spec(pod_id: &str) -> PodNetworkSpec {
    PodNetworkSpec { pod_id: pod_id.into(), name: "web".into(), ..Default::default() }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The namespaces' folder is a mount; the temporary folder could not be removed around it.
        let _ = nix::mount::umount2(&self.path("netns"), nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Each kind of setting, one or two of them.
const EVERYTHING: &str = "
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 2 > /proc/sys/net/ipv4/conf/eth0/rp_filter
nft add table inet guard
nft add table ip 'mesh'
iptables-nft -t nat -A OUTPUT -p tcp -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 15001
ip route add 10.99.0.0/16 advmss 1200 initcwnd 20 nexthop via 10.88.0.1 nexthop via 10.88.0.9
ip rule add fwmark 0x111 priority 1000 lookup 333
ip route add local 0.0.0.0/0 dev lo table 333
tc qdisc add dev eth0 clsact
";

#[test]
fn plugins_that_set_up_interfaces_alone_leave_nothing() {
    Node::with("true", async |node| {
        let network = node.setup(SettingsPolicy::Refuse).await.unwrap();
        let policy = SettingsPolicy::Refuse;
        assert_eq!(network.settings, PodSettings { policy, ..PodSettings::default() });
    });
}

#[test]
fn each_kind_of_setting_is_found_and_has_the_plugins_name() {
    Node::with(EVERYTHING, async |node| {
        let network = node.setup(SettingsPolicy::Warn).await.unwrap();
        let route = network.routes.iter().find(|route| route.destination == "10.99.0.0/16").unwrap();
        assert_eq!((route.gateway.as_str(), route.advmss), ("10.88.0.1", 1200));
        let mut found = network.settings.passed_by;
        found.retain(|line| !line.starts_with("the sysctl"));
        let expected = [
            "the nftables table inet guard, left by mesh",
            "the nftables table ip mesh, left by mesh",
            "the nftables table ip nat, left by mesh",
            "the `ip rule` 1000 to table 333, left by mesh",
            "routes in table 333 of `ip route`, left by mesh",
            "the further next hops of the route 10.99.0.0/16 of `ip route`, left by mesh",
            "the initcwnd of the route 10.99.0.0/16 of `ip route`, left by mesh",
            "the tc qdisc clsact on eth0, left by mesh",
        ];
        found.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
    });
}

#[test]
fn sysctls_are_found_with_those_that_follow_from_them() {
    // A new namespace forwards where the first one of the node does: then nothing follows.
    let forwards = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1");
    Node::with(EVERYTHING, async move |node| {
        let mut found = node.setup(SettingsPolicy::Warn).await.unwrap().settings.passed_by;
        found.retain(|line| line.starts_with("the sysctl"));
        let expected = [
            "the sysctl net/ipv4/ip_forward = 1, left by mesh",
            "the sysctl net/ipv4/conf/all/accept_redirects = 0, left by mesh",
            "the sysctl net/ipv4/conf/all/forwarding = 1, left by mesh",
            "the sysctl net/ipv4/conf/default/forwarding = 1, left by mesh",
            "the sysctl net/ipv4/conf/eth0/forwarding = 1, left by mesh",
            "the sysctl net/ipv4/conf/eth0/rp_filter = 2, left by mesh",
            "the sysctl net/ipv4/conf/lo/forwarding = 1, left by mesh",
        ];
        assert_eq!(found, if forwards { &expected[5..6] } else { &expected[..] });
    });
}

#[test]
fn settings_in_a_namespace_that_waited_are_found_as_in_a_new_one() {
    Node::with(EVERYTHING, async |node| {
        let new = node.setup(SettingsPolicy::Warn).await.unwrap().settings;
        let cni = node.cni(SettingsPolicy::Warn);
        assert!(cni.make_spare().await.unwrap());
        let waited = cni.setup(&spec("p2")).await.unwrap().settings;
        assert_eq!(cni.spares(), 0);
        assert!(new.passed_by.len() > 6, "{:?}", new.passed_by);
        assert_eq!(new, waited);
    });
}

#[test]
fn an_interface_that_a_plugin_replaces_by_another_of_its_name_is_read_anew() {
    let replace = "ip link del eth0\nip link add eth0 type veth peer name other\necho 2 > /proc/sys/net/ipv4/conf/eth0/rp_filter";
    Node::with(replace, async |node| {
        let found = node.setup(SettingsPolicy::Warn).await.unwrap().settings.passed_by;
        let line = "the sysctl net/ipv4/conf/eth0/rp_filter = 2, left by mesh";
        assert!(found.iter().any(|found| found == line), "{found:?}");
    });
}

#[test]
fn a_refused_pod_says_what_was_left_and_leaves_nothing_itself() {
    Node::with("nft add table ip mesh", async |node| {
        let error = node.setup(SettingsPolicy::Refuse).await.unwrap_err();
        assert!(matches!(error, NetError::SettingsRefused { .. }), "{error:?}");
        assert!(error.to_string().contains("the nftables table ip mesh, left by mesh"), "{error}");
        assert!(!node.path("netns/podvisor-p1").exists());
        assert_eq!(fs::read_dir(node.path("cache/podvisor")).unwrap().count(), 0);
    });
}

/// Rules like those of a mesh, a firewall and a proxy: users, marks, sets and maps of each kind, unnamed
/// chains, iptables' own matches.
const FILTERS: &str = r#"
nft -f - <<'RULES'
table inet guard {
    counter hits { packets 3 bytes 180 }
    quota daily { over 10 mbytes }
    set allowed { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 443, 192.0.2.1 . 80-90 } }
    set seen { type ipv4_addr; size 64; flags dynamic,timeout; timeout 1m; }
    map ports { type inet_service : verdict; elements = { 22 : jump admin, 80 : accept } }
    map counted { type ipv4_addr : counter; elements = { 10.1.2.3 : "hits" } }
    chain admin {
        counter packets 7 bytes 420 accept comment "by hand"
    }
    chain input {
        type filter hook input priority -5; policy drop;
        iif "lo" accept
        iifname { "eth0", "eth1" } ct state established,related accept
        ip saddr . tcp dport @allowed accept
        tcp dport vmap @ports
        tcp dport vmap { 8080 : accept, 8443 : goto admin }
        counter name ip saddr map @counted
        add @seen { ip saddr limit rate 3/minute } log prefix "seen: " reject
    }
}
table ip dormant {
    flags dormant
    chain c {
        type nat hook output priority -100; policy accept;
    }
}
table ip6 mesh {
    chain output {
        type nat hook output priority -100;
        meta skuid 1337 return
        meta mark set 0x539
        ip6 daddr != ::1 tcp dport 80 redirect to :15001
    }
}
table netdev edge {
    chain in {
        type filter hook ingress device "eth0" priority 0; policy accept;
        meta l4proto icmp accept
    }
}
RULES
for tables in iptables-nft ip6tables-nft; do
  $tables -t nat -N MESH_OUT
  $tables -t nat -A OUTPUT -p tcp -j MESH_OUT
  $tables -t nat -A MESH_OUT -m owner --uid-owner 1337 -j RETURN
  $tables -t nat -A MESH_OUT -o lo -j RETURN
  $tables -t nat -A MESH_OUT -p tcp -m multiport ! --dports 22,15001:15010 -m comment --comment "to the proxy" -j REDIRECT --to-ports 15001
  $tables -t mangle -A PREROUTING -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j CONNMARK --restore-mark
  $tables -A INPUT ! -p udp -m mark --mark 0x539/0xfff -j ACCEPT
  $tables -A FORWARD -p udp -m udp --dport 53 -m statistic --mode random --probability 0.5 -j DROP
done
"#;

/// Sends a table to the kernel as one batch. Returns the kernel's first error, or 0. The agent has the
/// careful version of this.
fn send(messages: &[u8]) -> i32 {
    let mark = |kind: u8| [&[20, 0, 0, 0, kind, 0, 1, 0][..], &[0; 8], &[0, 0, 0, 10]].concat();
    let netlink = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), netlink).unwrap();
    setsockopt(&socket, sockopt::SndBufForce, &(8 << 20)).unwrap();
    let mut batch = [mark(16), messages.to_vec(), mark(17)].concat();
    let mut at = 20;
    // Every message asks for an answer, and the answers are read until there are none.
    while at < 20 + messages.len() {
        batch[at + 6] |= 4;
        at += u32::from_ne_bytes(batch[at..at + 4].try_into().unwrap()).next_multiple_of(4) as usize;
    }
    sendto(socket.as_raw_fd(), &batch, &NetlinkAddr::new(0, 0), MsgFlags::empty()).unwrap();
    let mut buffer = vec![0; 1 << 17];
    while let Ok(read) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
        let error = i32::from_ne_bytes(buffer[16..20].try_into().unwrap());
        if read >= 20 && error != 0 {
            return -error;
        }
    }
    0
}

/// The rules of this namespace, without the parts changed by packets and time.
fn rules() -> Vec<String> {
    let listed = run("nft", &["-s", "list", "ruleset"]);
    listed.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tables_are_the_same_in_the_next_kernel() {
    Node::with(FILTERS, async |node| {
        let settings = node.setup(SettingsPolicy::ReplayOrRefuse).await.unwrap().settings;
        assert_eq!(settings.passed_by, Vec::<String>::new());
        let pods = fs::File::open(node.path("netns/podvisor-p1")).unwrap();
        setns(pods, CloneFlags::CLONE_NEWNET).unwrap();
        let before = rules();
        let saved = run("iptables-nft-save", &[]);
        assert!(saved.contains("--uid-owner 1337") && before.len() > 100, "{before:#?}");

        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        run("ip", &["link", "add", "eth0", "type", "veth"]);
        for table in &settings.nft_tables {
            assert_eq!(send(&table.messages), 0, "{} by {}", table.name, table.plugin);
        }
        assert_eq!(rules(), before);
        let plain = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with(['#', ':'])).map(str::to_owned).collect()
        };
        assert_eq!(plain(&run("iptables-nft-save", &[])), plain(&saved));
    });
}

#[test]
fn a_chain_without_a_name_goes_with_its_rule() {
    let filters = "
nft 'add table ip t; add chain ip t c { type filter hook input priority 0; }'
nft 'add rule ip t c ip saddr 10.9.9.9 jump { counter; limit rate 5/second accept; drop; }'";
    Node::with(filters, async |node| {
        let settings = node.setup(SettingsPolicy::ReplayOrRefuse).await.unwrap().settings;
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert_eq!(send(&settings.nft_tables[0].messages), 0);
        let rules = rules().join("\n");
        assert!(rules.contains("ip saddr 10.9.9.9 jump __chain"), "{rules}");
        assert_eq!(rules.matches("limit rate 5/second accept").count(), 1, "{rules}");
    });
}

#[test]
fn a_table_that_would_mean_something_else_in_a_guest_is_left_out_alone() {
    let filters = "
nft add table ip good
nft 'add table ip bad; add chain ip bad c { type filter hook input priority 0; }; add rule ip bad c iif eth0 drop'";
    Node::with(filters, async |node| {
        let settings = node.setup(SettingsPolicy::Replay).await.unwrap().settings;
        assert_eq!(settings.nft_tables.iter().map(|table| &*table.name).collect::<Vec<_>>(), ["ip good"]);
        assert_eq!(settings.passed_by.len(), 1);
        assert!(settings.passed_by[0].starts_with("the nftables table ip bad, left by mesh: a rule matches"));
    });
}

#[test]
fn a_hundred_thousand_rules_are_too_many_and_no_pod_waits_for_them() {
    let filters = "
nft 'add table ip big; add chain ip big c'
seq 100000 | sed 's/.*/add rule ip big c meta mark & counter accept/' | nft -f -";
    Node::with(filters, async |node| {
        let settings = node.setup(SettingsPolicy::Replay).await.unwrap().settings;
        assert_eq!(settings.nft_tables, []);
        let [line] = &settings.passed_by[..] else { panic!("{:?}", settings.passed_by) };
        assert!(line.contains("more than 1048576 bytes of tables and rules"), "{line}");
        let error = node.setup_named("p2", SettingsPolicy::ReplayOrRefuse).await.unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    });
}
