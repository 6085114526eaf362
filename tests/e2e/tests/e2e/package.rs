//! The Debian package, in a tree of this host's files with a systemd of its own (`tests/deb/boot`): installed, upgraded
//! under a running pod, watched, removed and purged.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use proto_cri::v1::ContainerState;
use tests_e2e::client::Client;
use tests_e2e::network::Network;
use tests_e2e::{host, spec};
use tokio::process::{Child, Command};

/// Directory of the packages that `tests/deb/run` makes.
const PACKAGES_VARIABLE: &str = "PODVISOR_E2E_PACKAGES";

/// Longest wait for a service to change its state: a watchdog's time, and a start in the software node.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A line of shell that lists the VMMs.
const VMMS: &str = "grep -lx podvisor-vmm /proc/[0-9]*/comm 2>/dev/null";

/// A Debian system beside this one.
struct System {
    /// Ends the system when its standard input ends: with this handle at the latest.
    boot: Child,
    pid: String,
}

impl System {
    async fn boot(dir: &Path) -> System {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deb/boot");
        let mut boot = Command::new(program);
        let mut boot = boot.arg(dir).stdin(Stdio::piped()).spawn().unwrap();
        loop {
            if let Ok(pid) = std::fs::read_to_string(dir.join("pid"))
                && pid.ends_with('\n')
            {
                return System { boot, pid: pid.trim().to_owned() };
            }
            assert!(boot.try_wait().unwrap().is_none(), "the system does not boot");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Ends the system, and waits until nothing of it is left.
    async fn end(mut self) {
        drop(self.boot.stdin.take());
        assert!(self.boot.wait().await.unwrap().success());
    }

    /// A path of the system, as this process sees it.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// Runs a line of shell; returns how it ended and what it wrote.
    async fn try_sh(&self, line: &str) -> (ExitStatus, String) {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid, "--mount", "--pid", "--cgroup", "--root", "--wd", "sh", "-c"]);
        let output = command.arg(format!("exec 2>&1; {line}")).output().await.unwrap();
        (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn sh(&self, line: &str) -> String {
        let (status, text) = self.try_sh(line).await;
        assert!(status.success(), "{line}: {status}: {text}");
        text
    }

    /// Waits until the line writes something else than `before`.
    async fn changed(&self, line: &str, before: &str) -> String {
        let change = async {
            loop {
                let (_, now) = self.try_sh(line).await;
                if now != before {
                    return now;
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::time::timeout(CHANGE_TIMEOUT, change)
            .await
            .unwrap_or_else(|_| panic!("{line}: still {before}"))
    }

    async fn install(&self, package: &Path) -> (ExitStatus, String) {
        std::fs::copy(package, self.path("/podvisor.deb")).unwrap();
        self.try_sh("dpkg --install /podvisor.deb").await
    }

    /// A client of the daemon, which serves by now.
    async fn client(&self) -> Client {
        Client::connect(&self.path("/run/podvisor/podvisor.sock")).await.unwrap()
    }

    async fn daemon(&self) -> String {
        assert_eq!(self.sh("systemctl is-active podvisor").await, "active\n");
        self.sh("systemctl show --property MainPID --value podvisor").await
    }

    /// Every file of the package and of the daemon.
    async fn files(&self) -> String {
        // Lists of dpkg's, and names that it keeps of packages that were there.
        self.sh("find /etc /run /usr /var -xdev -name '*podvisor*' -not -path '/var/lib/dpkg/*' | sort").await
    }
}

/// The daemon is restarted by systemd, whatever `line` does to it, and the container goes on.
async fn survives(system: &System, container: &str, line: &str) {
    let daemon = system.daemon().await;
    system.sh(line).await;
    // The line names no process while there is none.
    let restarted = async {
        loop {
            let now = system.changed("systemctl show --property MainPID --value podvisor", &daemon).await;
            if now != "0\n" && system.try_sh("systemctl is-active --quiet podvisor").await.0.success() {
                return;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::time::timeout(CHANGE_TIMEOUT, restarted).await.unwrap_or_else(|_| panic!("{line}: not restarted"));
    assert_eq!(system.client().await.sh(container, "echo here").await.unwrap(), "here\n", "{line}");
}

#[tokio::test]
async fn a_pod_outlives_upgrade_watchdog_and_removal_of_the_package() {
    let Some(packages) = std::env::var_os(PACKAGES_VARIABLE).map(PathBuf::from) else {
        eprintln!("skipped: {PACKAGES_VARIABLE} is not set; tests/deb/run sets it");
        return;
    };
    let (first, next, older) =
        (packages.join("first.deb"), packages.join("next.deb"), packages.join("older.deb"));
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("system");
    std::fs::create_dir(&tree).unwrap();
    let network = Network::write(dir.path()).unwrap();
    let system = System::boot(&tree).await;
    for file in std::fs::read_dir(&network.conf_dir).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), system.path("/etc/cni/net.d").join(file.file_name())).unwrap();
    }
    let files_before = system.files().await;

    // Installed, the daemon serves at once.
    let (status, text) = system.install(&first).await;
    assert!(status.success(), "{text}");
    let daemon = system.daemon().await;
    assert_eq!(system.sh("systemctl is-enabled podvisor").await, "enabled\n");
    // Each pod's disk is a copy of this, holes included.
    system.sh("[ $(du -k /usr/lib/podvisor/scratch.ext4 | cut -f 1) -lt 8192 ]").await;
    let mut client = system.client().await;
    let image = format!("{}/podvisor/busybox:latest", host::registry().await.unwrap().addr);
    let image = client.pull(&image).await.unwrap();
    let pod = client.run_pod(&spec::pod("web", Path::new("/var/log/pods"))).await.unwrap();
    let main = client.run(&pod, spec::container("main", &image, &["sleep", "100000"])).await.unwrap();
    let vmm = system.sh(VMMS).await;

    // An upgrade restarts the daemon, and keeps pods and the operator's configuration.
    system.sh("echo '# by the operator' >>/etc/podvisor/config.toml").await;
    let (status, text) = system.install(&next).await;
    assert!(status.success(), "{text}");
    assert_ne!(system.daemon().await, daemon, "{text}");
    system.sh("grep '# by the operator' /etc/podvisor/config.toml").await;
    let mut client = system.client().await;
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    let new = client.run(&pod, spec::shell("new", &image, "exit 3")).await.unwrap();
    assert_eq!(client.wait(&new).await.unwrap().exit_code, 3);

    // A version that could not read the records changes nothing.
    let daemon = system.daemon().await;
    let (status, text) = system.install(&older).await;
    assert!(!status.success() && text.contains("cannot follow the installed version"), "{text}");
    assert_eq!(system.daemon().await, daemon);

    // A daemon that ends, and one that hangs, is started again. A short watchdog saves time and is long enough for a slow node.
    survives(&system, &main, "systemctl kill --signal KILL --kill-who main podvisor").await;
    let short = "/run/systemd/system/podvisor.service.d";
    system.sh(&format!("mkdir -p {short}; printf '[Service]\\nWatchdogSec=30\\n' >{short}/short.conf")).await;
    survives(&system, &main, "systemctl daemon-reload; systemctl restart podvisor").await;
    survives(&system, &main, "systemctl kill --signal STOP --kill-who main podvisor").await;
    system.sh("journalctl --unit podvisor | grep 'Watchdog timeout'").await;
    system.sh(&format!("rm -r {short}; systemctl daemon-reload")).await;

    // Removed, the package leaves the pod alone, and a purge is refused while there is one.
    let removed = system.sh("dpkg --remove podvisor").await;
    assert!(removed.contains("VMs that run on: 1"), "{removed}");
    assert_eq!(system.sh(VMMS).await, vmm);
    system.sh("! command -v podvisor && [ -e /etc/podvisor/config.toml ] && ! grep -qx podvisor /proc/[0-9]*/comm").await;
    let (status, text) = system.try_sh("dpkg --purge podvisor").await;
    assert!(!status.success() && text.contains("VMs still run"), "{text}");
    system.sh("[ -e /var/lib/podvisor/store.redb ]").await;

    // Installed again, it takes the pod over.
    let (status, text) = system.install(&next).await;
    assert!(status.success(), "{text}");
    let mut client = system.client().await;
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    assert_eq!(client.status(&main).await.unwrap().state(), ContainerState::ContainerRunning);
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    system.sh("dpkg --purge podvisor").await;
    assert_eq!(system.files().await, files_before, "left behind");
    system.end().await;
    network.remove().await.unwrap();
}
