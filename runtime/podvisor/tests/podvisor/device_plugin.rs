//! `podvisor device-plugin` as a process, without a kubelet: signals, a second plugin, wrong arguments.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Timeout of a test's waits. Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A plugin's process, killed when the test ends.
struct Plugin(Child);

impl Plugin {
    fn start(node: &Path) -> Plugin {
        Plugin::start_with(node, &[])
    }

    fn start_with(node: &Path, arguments: &[&str]) -> Plugin {
        let config = node.join("config.toml");
        fs::write(&config, "").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
        command.arg("--config").arg(config).arg("device-plugin").args(arguments);
        command.arg("--directory").arg(node.join("device-plugins"));
        command.arg("--pod-resources").arg(node.join("pod-resources.sock"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Plugin(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end, and returns it with the text on standard error.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut ended = None;
        until(|| {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (ended.unwrap(), said)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "it came in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A node with the kubelet's directory.
fn node() -> tempfile::TempDir {
    let node = tempfile::tempdir().unwrap();
    fs::create_dir(node.path().join("device-plugins")).unwrap();
    node
}

#[test]
fn sigterm_and_sigint_leave_no_socket() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let node = node();
        let socket = node.path().join("device-plugins/podvisor-vm.sock");
        let plugin = Plugin::start(node.path());
        until(|| socket.exists());
        plugin.signal(signal);
        let (status, said) = plugin.ended();
        assert!(status.success(), "{status}: {said}");
        assert!(!socket.exists());
        assert!(said.contains("waiting for a kubelet") && said.contains("stopped"), "{said}");
    }
}

#[test]
fn a_second_plugin_ends_with_the_firsts_pid_and_one_after_a_kill_does_not() {
    let node = node();
    let socket = node.path().join("device-plugins/podvisor-vm.sock");
    let first = Plugin::start(node.path());
    until(|| socket.exists());
    let (status, said) = Plugin::start(node.path()).ended();
    assert!(!status.success());
    assert!(said.contains(&format!("another podvisor device-plugin, pid {},", first.0.id())), "{said}");
    assert!(socket.exists());
    first.signal(Signal::SIGKILL);
    first.ended();
    assert!(socket.exists(), "nobody tidied up");
    let third = Plugin::start(node.path());
    until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
    third.signal(Signal::SIGTERM);
    assert!(third.ended().0.success());
    assert!(!socket.exists());
}

#[test]
fn a_name_that_no_kubelet_takes_ends_the_plugin_before_it_does_anything() {
    let node = node();
    let (status, said) = Plugin::start_with(node.path(), &["--resource", "vm"]).ended();
    assert!(!status.success());
    assert!(said.contains("is no name of an extended resource"), "{said}");
    assert_eq!(fs::read_dir(node.path().join("device-plugins")).unwrap().count(), 0);
}
