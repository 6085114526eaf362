//! A Debian system beside this one, in a tree of this host's files with its own systemd (`tests/deb/boot`),
//! for tests of an installation's effects on a system.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tests_e2e::client::Client;
use tests_e2e::network::Network;
use tests_e2e::pasted;
use tests_e2e::wait::until_seen;
use tokio::process::{Child, Command};

/// A line of shell printing the daemon's process id.
pub(crate) const MAIN_PID: &str = "systemctl show --property MainPID --value podvisor";

/// A Debian system beside this one.
#[derive(Debug)]
pub(crate) struct System {
    /// Ends the system when its standard input ends: with this handle at the latest.
    boot: Child,
    pid: String,
}

impl System {
    pub(crate) async fn boot(dir: &Path) -> System {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deb/boot");
        let mut boot = Command::new(program);
        let mut boot = boot.arg(dir).stdin(Stdio::piped()).spawn().unwrap();
        let pid = until_seen("the system to boot", async || {
            assert!(boot.try_wait().unwrap().is_none(), "the system does not boot");
            match std::fs::read_to_string(dir.join("pid")) {
                Ok(pid) if pid.ends_with('\n') => Ok(pid.trim().to_owned()),
                seen => Err(seen),
            }
        });
        let pid = pid.await;
        System { boot, pid }
    }

    /// Ends the system, and waits until nothing of it is left.
    pub(crate) async fn end(mut self) {
        drop(self.boot.stdin.take());
        assert!(self.boot.wait().await.unwrap().success());
    }

    /// A path of the system, as this process sees it.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// Runs a line of shell; returns its status and output.
    pub(crate) async fn try_sh(&self, line: &str) -> (ExitStatus, String) {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid, "--mount", "--pid", "--cgroup", "--root", "--wd", "sh", "-c"]);
        let output = command.arg(format!("exec 2>&1; {line}")).output().await.unwrap();
        (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) async fn sh(&self, line: &str) -> String {
        let (status, text) = self.try_sh(line).await;
        assert!(status.success(), "{line}: {status}: {text}");
        text
    }

    /// Runs a block of a page as a reader pastes it, in an empty directory; returns its output.
    pub(crate) async fn paste(&self, page: &str, begins: &str) -> String {
        let script = pasted::script(page, begins).unwrap();
        std::fs::create_dir_all(self.path("/tmp/pasted")).unwrap();
        std::fs::write(self.path("/tmp/pasted/script"), script).unwrap();
        self.sh(
            "cd /tmp/pasted && bash -euo pipefail script </dev/null; code=$?; rm -r /tmp/pasted; exit $code",
        )
        .await
    }

    /// A client of the running daemon.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.path("/run/podvisor/podvisor.sock")).await.unwrap()
    }

    pub(crate) async fn daemon(&self) -> String {
        assert_eq!(self.sh("systemctl is-active podvisor").await, "active\n");
        self.sh(MAIN_PID).await
    }

    /// Every file of an installation and of the daemon.
    pub(crate) async fn files(&self) -> String {
        // dpkg's lists, and its names of removed packages.
        let line = "find /srv/written /run -xdev -name '*podvisor*' -not -path '*/var/lib/dpkg/*' | sort";
        self.sh(line).await
    }

    /// Gives the system the network's configuration.
    pub(crate) fn add_network(&self, network: &Network) {
        for file in std::fs::read_dir(&network.conf_dir).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), self.path("/etc/cni/net.d").join(file.file_name())).unwrap();
        }
    }
}
