//! A node for tests: a thread's own network and mount namespaces, with the real plugins, and the guest's end of
//! a tap. Needs root and the plugins; says so and passes without.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use runtime_net::{Cni, CniConfig, PodNetwork, PodNetworkSpec};
use runtime_spec::{PortMapping, Protocol};

const PLUGIN_DIR: &str = "/usr/lib/cni";
const HEADER_BYTES: usize = 12;
/// Most time to wait for an immediate event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `test` on a thread acting as a node, with its own network and mount namespaces.
pub(crate) fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F + Send + 'static) {
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

pub(crate) struct Node {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cni: Cni,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net.d")).unwrap();
        let cni = Self::cni(dir.path(), dir.path().join("netns"));
        Self { dir, cni }
    }

    pub(crate) fn cni(dir: &Path, netns_dir: PathBuf) -> Cni {
        Cni::new(CniConfig {
            conf_dir: dir.join("net.d"),
            bin_dirs: vec![dir.join("bin"), PLUGIN_DIR.into()],
            cache_dir: dir.join("cache"),
            netns_dir,
            // A software node under load is very slow.
            plugin_time_max: Duration::from_secs(600),
            spares_max: 1,
            ..CniConfig::default()
        })
    }

    /// Installs a shell script as a plugin.
    pub(crate) fn install(&self, plugin: &str, script: &str) {
        let path = self.dir.path().join("bin").join(plugin);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn write_network(&self, text: &str) {
        fs::write(self.dir.path().join("net.d/10-net.conflist"), text).unwrap();
    }

    pub(crate) fn configure(&self, extra_plugin: &str) {
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

    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.path().join("leases")
    }

    /// Everything of a pod left on this node, without the bridge.
    pub(crate) fn left_over(&self) -> Vec<String> {
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

pub(crate) fn spec() -> PodNetworkSpec {
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

pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn until(what: &str, true_now: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !true_now() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The guest's end of the pod's tap.
pub(crate) struct Guest {
    tap: File,
    pub(crate) mac: [u8; 6],
}

impl Guest {
    pub(crate) fn new(network: &PodNetwork) -> Self {
        let interface = &network.interfaces[0];
        Self { tap: interface.tap.try_clone().unwrap().into(), mac: interface.mac }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        let mut packet = vec![0; HEADER_BYTES];
        packet.extend_from_slice(frame);
        self.tap.write_all(&packet).unwrap();
    }

    /// The next frame accepted by `wanted`.
    pub(crate) fn receive(&mut self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
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
