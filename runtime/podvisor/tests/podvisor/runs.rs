//! `podvisor run` as a process, with a fake daemon: its requests, and its end by a signal.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use proto_cri::v1;
use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning};
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

/// A daemon with a running container, whose sessions are at this listener.
fn with_sessions() -> (FakeDaemon, TcpListener) {
    let daemon = daemon("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    daemon.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "1".repeat(64) });
    daemon.answers("CreateContainer", &v1::CreateContainerResponse { container_id: "2".repeat(64) });
    let url = format!("http://{}/attach/x", listener.local_addr().unwrap());
    daemon.answers("Attach", &v1::AttachResponse { url });
    for call in ["StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox"] {
        daemon.answers(call, &());
    }
    is_now(&daemon, ContainerRunning);
    (daemon, listener)
}

/// The container is in this state, with the code 7.
fn is_now(daemon: &FakeDaemon, state: v1::ContainerState) {
    let status = v1::ContainerStatus { state: state.into(), exit_code: 7, ..Default::default() };
    let status = v1::ContainerStatusResponse { status: Some(status), ..Default::default() };
    daemon.answers("ContainerStatus", &status);
}

#[test]
fn a_broken_session_of_a_running_container_is_followed_by_another() {
    let (daemon, listener) = with_sessions();
    let running = command(&daemon, &["-t"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(listener.accept().unwrap());
    let second = listener.accept().unwrap();
    assert_eq!(daemon.asked("StopPodSandbox"), 0);
    is_now(&daemon, ContainerExited);
    drop(second);
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("; attaching again, and some output may be missing here\n"), "{said}");
    assert_eq!((daemon.asked("Attach"), daemon.asked("StopPodSandbox")), (2, 1));
}

#[test]
fn a_run_that_has_lost_its_session_leaves_its_pod() {
    let (daemon, listener) = with_sessions();
    drop(listener);
    let output = command(&daemon, &["-t", "--rm"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(&format!("goes on, and `podvisor attach -t {}` ", "1".repeat(64))), "{said}");
    let asked = ["StopContainer", "StopPodSandbox", "RemovePodSandbox"].map(|call| daemon.asked(call));
    assert_eq!(asked, [0; 3]);
}
