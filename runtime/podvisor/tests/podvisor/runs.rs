//! `podvisor run` as a process, with a fake daemon: its requests, and its end by a signal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use proto_cri::v1;
use tonic::Status;

use crate::fake::FakeDaemon;

/// A daemon with an image, whose configuration has these lines more.
fn daemon(more: &str) -> FakeDaemon {
    let daemon = FakeDaemon::start();
    let state = daemon.config().with_file_name("state");
    let text = format!("[paths]\nsocket = {:?}\nstate = {state:?}\n{more}", daemon.socket());
    std::fs::write(daemon.config(), text).unwrap();
    let image = v1::Image { id: "sha256:1".into(), ..Default::default() };
    daemon.answers("ImageStatus", &v1::ImageStatusResponse { image: Some(image), ..Default::default() });
    daemon
}

fn command(daemon: &FakeDaemon, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
    command.arg("--config").arg(daemon.config()).arg("run").args(flags).arg("image").stdin(Stdio::null());
    command
}

/// The handler in the request for a pod.
fn handler(daemon: &FakeDaemon, flags: &[&str]) -> String {
    daemon.refuses("RunPodSandbox", Status::internal("no room"));
    let output = command(daemon, flags).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(125) && error.contains("no room"), "{error}");
    v1::RunPodSandboxRequest::decode(&*daemon.last("RunPodSandbox")).unwrap().runtime_handler
}

#[test]
fn a_run_is_in_a_vm_also_where_pods_without_a_handler_go_to_another_runtime() {
    let behind = "[upstream]\nsocket = \"/run/containerd/containerd.sock\"\nunnamed_pods = ";
    assert_eq!(handler(&daemon(""), &[]), "");
    assert_eq!(handler(&daemon(&format!("{behind}\"node\"\n")), &[]), "");
    let all = format!("{behind}\"all\"\n");
    assert_eq!(handler(&daemon(&all), &[]), "podvisor");
    assert_eq!(handler(&daemon(&all), &["--handler", "runc"]), "runc");
    let two = "[[handler]]\nname = \"a\"\n[[handler]]\nname = \"b\"\n";
    let unclear = daemon(&(all + two));
    let output = command(&unclear, &[]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("name one with --handler") && unclear.asked("RunPodSandbox") == 0, "{error}");
}

#[test]
fn a_signal_while_a_pod_starts_ends_it_behind_its_start() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGHUP, 129), (Signal::SIGTERM, 143)] {
        let daemon = daemon("");
        daemon.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "1".repeat(64) });
        for call in ["StopPodSandbox", "RemovePodSandbox"] {
            daemon.answers(call, &());
        }
        daemon.hangs_at("RunPodSandbox");
        let mut running = command(&daemon, &["--rm"]).stderr(Stdio::piped()).spawn().unwrap();
        while daemon.asked("RunPodSandbox") == 0 {
            std::thread::yield_now();
        }
        kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), signal).unwrap();
        let mut said = String::new();
        BufReader::new(running.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.starts_with("podvisor: interrupted; "), "{said}");
        daemon.goes_on();
        assert_eq!(running.wait().unwrap().code(), Some(code));
        let asked = ["CreateContainer", "StopPodSandbox", "RemovePodSandbox"].map(|call| daemon.asked(call));
        assert_eq!(asked, [0, 1, 1], "{signal}");
    }
}
