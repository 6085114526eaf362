//! `podvisor run` and `podvisor check`, as a person uses them.

use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_cri::v1;
use tests_e2e::traces::Traces;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

async fn podvisor(host: &Host, arguments: &[&str]) -> Output {
    Command::new(host.daemon.binary())
        .arg("--config")
        .arg(host.daemon.config())
        .args(arguments)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn run_prints_the_containers_output_and_ends_with_its_code() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let image = host.busybox();
    let line = "echo to stdout; echo to stderr >&2; exit 3";
    let output = podvisor(&host, &["run", "--rm", &image, "sh", "-c", line]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "to stdout\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("to stderr\n"), "{output:?}");
    let output =
        podvisor(&host, &["run", "--rm", "--memory", "64m", "--cpus", "1", &image, "no-such-command"]).await;
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(host.client().pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn run_without_a_daemon_starts_a_private_one_and_ends_it() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    host.daemon.stop().await.unwrap();
    let output = podvisor(&host, &["run", "--rm", &host.busybox(), "echo", "alone"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alone\n");
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    let images = std::fs::read_dir(host.dir().join("state/private/0/images/images")).unwrap().count();
    assert_eq!(images, 1, "the next command finds the image");
    let private = std::fs::read_dir(host.dir().join("run")).unwrap().flatten();
    let is_daemons = |name: &std::ffi::OsString| name == "pods" || name == "state.json";
    let left: Vec<_> = private.map(|entry| entry.file_name()).filter(|name| !is_daemons(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_private_daemon_leaves_the_nodes_pods_alone_and_ends_with_its_command() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("stays", host.dir())).await.unwrap();
    let kept = client.run(&pod, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    let before = Traces::take(host.dir()).unwrap();
    host.daemon.stop().await.unwrap();
    let mut command = Command::new(host.daemon.binary())
        .arg("--config")
        .arg(host.daemon.config())
        .args(["run", "--rm", &host.busybox(), "sh", "-c", "echo alone; exec sleep 100000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("alone"));
    assert_ne!(Traces::take(host.dir()).unwrap().since(&before), Vec::<String>::new());
    // SIGKILL: nothing of the command can clean up.
    command.kill().await.unwrap();
    until_seen("the private daemon's pod to be gone", async || {
        let left = Traces::take(host.dir()).unwrap().since(&before);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.status(&kept).await.unwrap().state(), v1::ContainerState::ContainerRunning);
    assert_eq!(client.sh(&kept, "echo here").await.unwrap(), "here\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// The children of a process with this name.
fn children(parent: u32, name: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let is_child = |stat: &str| {
        let (start, rest) = stat.rsplit_once(") ").unwrap();
        start.ends_with(&format!("({name}")) && rest.split(' ').nth(1) == Some(&parent.to_string())
    };
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let stats =
        pids.filter_map(|pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)));
    stats.filter(|(_, stat)| is_child(stat)).map(|(pid, _)| Pid::from_raw(pid)).collect()
}

#[tokio::test]
async fn a_command_starts_beside_what_a_killed_one_left_behind() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    host.daemon.stop().await.unwrap();
    let mut command = Command::new(host.daemon.binary())
        .arg("--config")
        .arg(host.daemon.config())
        .args(["run", "--rm", &host.busybox(), "sh", "-c", "echo runs; exec sleep 100000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("runs"));
    let daemons = children(command.id().unwrap(), "podvisor");
    let vmms = children(daemons[0].as_raw().cast_unsigned(), "podvisor-vmm");
    assert_eq!((daemons.len(), vmms.len()), (1, 1));
    // A guest that hangs, and a runner that kills its whole job.
    kill(vmms[0], Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(command.id().unwrap().cast_signed()), Signal::SIGSTOP).unwrap();
    kill(daemons[0], Signal::SIGKILL).unwrap();
    command.kill().await.unwrap();
    let output = podvisor(&host, &["run", "--rm", &host.busybox(), "echo", "again"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "again\n", "{output:?}");
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_run_beside_a_daemon_without_a_network_has_a_daemon_of_its_own() {
    let Some(host) = Host::start().await else { return };
    std::fs::remove_file(host.network.conf_dir.join("10-test.conflist")).unwrap();
    let output = Command::new(host.daemon.binary())
        .arg("--config")
        .arg(host.daemon.config())
        .args(["run", "--rm", &host.busybox(), "sh", "-c", "ip route | head -n 1; exit 7"])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the daemon has no network for pods") && said.contains("a private one"), "{said}");
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("default via 10.87."), "{output:?}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn pods_in_vms_are_removed_by_name_and_all_at_once_and_running_ones_by_force() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let first = client.run_pod(&spec::pod("first", host.dir())).await.unwrap();
    client.run(&first, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    client.run_pod(&spec::pod("second", host.dir())).await.unwrap();
    let remove = async |arguments: &[&str]| {
        let mut command = Command::new(host.daemon.binary());
        command.arg("--config").arg(host.daemon.config()).arg("rm").args(arguments);
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, said) = remove(&["--all-vms"]).await;
    assert!(code == Some(125) && said.contains("pods are running: "), "{said}");
    assert!(said.contains("/first, ") && said.contains("/second. --force ends them"), "{said}");
    let (code, said) = remove(&["--force", "first"]).await;
    assert!(code == Some(0) && said.starts_with("removed ") && said.ends_with("/first\n"), "{said}");
    let (code, said) = remove(&["first"]).await;
    assert!(code == Some(125) && said.contains("no pod and no container has the id or the name"), "{said}");
    let (code, said) = remove(&["--force", "--all-vms"]).await;
    assert!(code == Some(0) && said.ends_with("/second\n"), "{said}");
    assert_eq!(remove(&["--all-vms"]).await, (Some(0), String::new()));
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_daemon_on_the_same_state_is_refused_with_the_firsts_pid() {
    let Some(host) = Host::start().await else { return };
    let text = std::fs::read_to_string(host.daemon.config()).unwrap();
    let run = |dir: &str| format!("run = {:?}", host.dir().join(dir));
    let file = host.dir().join("second.toml");
    std::fs::write(&file, text.replace(&run("run"), &run("second"))).unwrap();
    let output =
        Command::new(host.daemon.binary()).arg("--config").arg(&file).arg("serve").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains(&format!("another daemon, pid {},", host.daemon.pid())), "{text}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn check_boots_a_guest_and_finds_the_node_good() {
    let Some(host) = Host::start().await else { return };
    let output = podvisor(&host, &["check"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line.starts_with("ok    a Linux guest on KVM: kernel 6.12")), "{text}");
    assert!(output.status.success(), "{text}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_configuration_with_an_unknown_key_is_refused_with_file_and_line() {
    let Some(host) = Host::start().await else { return };
    let file = host.dir().join("bad.toml");
    std::fs::write(&file, "[paths]\nstat = \"/x\"\n").unwrap();
    let output =
        Command::new(host.daemon.binary()).arg("--config").arg(&file).arg("check").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.contains("bad.toml") && text.contains("line 2") && text.contains("stat"), "{text}");
    host.stop().await.unwrap();
}
