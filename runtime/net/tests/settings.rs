//! Settings that plugins leave in a pod's namespace, found by their traces in a real one. Needs root, the CNI plugins, nft and ip; says
//! so and passes without.

// The steps below are the tests' own; clippy's exception for tests knows marked functions only.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use runtime_net::{Cni, CniConfig, NetError, PodNetwork, PodNetworkSpec, PodSettings, SettingsPolicy};

const PLUGIN_DIR: &str = "/usr/lib/cni";

/// A node with a network of bridge, portmap and a script called `mesh`, on a thread with namespaces of its own.
struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// Runs `test` on a node whose `mesh` runs these commands at ADD, inside the pod's namespace.
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
        // The plugin's answer is what it was given; the keys of its input are in alphabetical order.
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
        let cni = Cni::new(CniConfig {
            conf_dir: self.path("net.d"),
            bin_dirs: vec![self.path("bin"), PLUGIN_DIR.into()],
            cache_dir: self.path("cache"),
            netns_dir: self.path("netns"),
            // A software node under load is very slow.
            plugin_time_max: Duration::from_secs(600),
            settings,
            ..CniConfig::default()
        });
        cni.setup(&PodNetworkSpec { pod_id: "p1".into(), name: "web".into(), ..Default::default() }).await
    }
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
ip rule add fwmark 0x111 priority 1000 lookup 333
ip route add local 0.0.0.0/0 dev lo table 333
tc qdisc add dev eth0 clsact
";

#[test]
fn plugins_that_set_up_interfaces_alone_leave_nothing() {
    Node::with("true", async |node| {
        let network = node.setup(SettingsPolicy::Refuse).await.unwrap();
        assert_eq!(network.settings, PodSettings::default());
    });
}

#[test]
fn each_kind_of_setting_is_found_and_has_the_plugins_name() {
    Node::with(EVERYTHING, async |node| {
        let network = node.setup(SettingsPolicy::Warn).await.unwrap();
        let mut found = network.settings.passed_by;
        found.retain(|line| !line.starts_with("the sysctl"));
        let expected = [
            "the nftables table inet guard, left by mesh",
            "the nftables table ip mesh, left by mesh",
            "the nftables table ip nat, left by mesh",
            "the `ip rule` 1000 to table 333, left by mesh",
            "routes in table 333 of `ip route`, left by mesh",
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
    Node::with(EVERYTHING, async |node| {
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
        assert_eq!(found, expected);
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
