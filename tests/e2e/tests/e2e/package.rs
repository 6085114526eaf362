//! The Debian package, in a tree of this host's files with its own systemd (`tests/deb/boot`): installed,
//! upgraded under a running pod, watched, removed and purged.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use proto_cri::v1::ContainerState;
use tests_e2e::network::Network;
use tests_e2e::wait::until_seen;
use tests_e2e::{host, spec};

use crate::system::{MAIN_PID, System};

/// Directory of the packages made by `tests/deb/run`.
pub(crate) const PACKAGES_VARIABLE: &str = "PODVISOR_E2E_PACKAGES";

/// A line of shell listing the VMMs of pods. The daemon may be making a template meanwhile.
const VMMS: &str = "for vmm in $(grep -lx podvisor-vmm /proc/[0-9]*/comm 2>/dev/null); do \
     grep -q /podvisor-unclaimed$ ${vmm%comm}cgroup || echo $vmm; done";

impl System {
    /// Copies the package to where the pages' blocks expect it.
    fn take(&self, package: &Path) {
        std::fs::copy(package, self.path("/tmp/podvisor.deb")).unwrap();
    }

    async fn install(&self, package: &Path) -> (ExitStatus, String) {
        self.take(package);
        self.try_sh("dpkg --install /tmp/podvisor.deb").await
    }
}

/// The daemon is restarted by systemd, whatever `line` does to it, and the container goes on.
async fn survives(system: &System, container: &str, line: &str) {
    let daemon = system.daemon().await;
    system.sh(line).await;
    until_seen(format!("the daemon to be restarted after {line}"), async || {
        let (_, now) = system.try_sh(MAIN_PID).await;
        let is_active = system.try_sh("systemctl is-active --quiet podvisor").await.0.success();
        // There is no process between the two, and a zero says so.
        if now != daemon && now != "0\n" && is_active { Ok(()) } else { Err((now, is_active)) }
    })
    .await;
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
    system.add_network(&network);
    let files_before = system.files().await;

    // Installed, the daemon serves at once.
    system.take(&first);
    system.paste("docs/install.md", "make deb").await;
    let daemon = system.daemon().await;
    assert_eq!(system.sh("systemctl is-enabled podvisor").await, "enabled\n");
    // Beside a kubelet it would serve; without one it waits. A purge ends it.
    system.paste("docs/device-plugin.md", "systemctl enable --now podvisor-device-plugin").await;
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
    system.take(&next);
    let text = system.paste("docs/install.md", "apt install --reinstall").await;
    assert_ne!(system.daemon().await, daemon, "{text}");
    system.sh("grep '# by the operator' /etc/podvisor/config.toml").await;
    let mut client = system.client().await;
    assert_eq!(client.sh(&main, "echo here").await.unwrap(), "here\n");
    let new = client.run(&pod, spec::shell("new", &image, "exit 3")).await.unwrap();
    assert_eq!(client.wait(&new).await.unwrap().exit_code, 3);

    // A version unable to read the records changes nothing.
    let daemon = system.daemon().await;
    let (status, text) = system.install(&older).await;
    assert!(!status.success() && text.contains("cannot follow the installed version"), "{text}");
    assert_eq!(system.daemon().await, daemon);

    // systemd restarts a daemon after its end or hang. A short watchdog saves time and is long enough for a
    // slow node.
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
    assert_eq!(system.sh("grep -lx podvisor-vmm /proc/[0-9]*/comm").await, vmm, "none without a pod is left");
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
    system.paste("README.md", "apt purge").await;
    assert_eq!(system.files().await, files_before, "left behind");
    system.end().await;
    network.remove().await.unwrap();
}
