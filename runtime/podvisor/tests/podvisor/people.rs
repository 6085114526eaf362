//! `podvisor ps`, `inspect`, `top` and `events` as processes, with a fake daemon: their output, and their
//! errors without a daemon, with another runtime, or with an older daemon.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use prost::Message;
use proto_cri::v1;
use proto_cri::v1::ContainerEventType::{ContainerCreatedEvent, ContainerStoppedEvent};
use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning, ContainerUnknown};
use tonic::Status;

use crate::fake::FakeDaemon;
use crate::fake::terminal::OnTerminal;

/// Timeout of a test's waits. Far longer than anything takes.
pub(crate) const PATIENCE: Duration = crate::fake::terminal::PATIENCE;

/// Ids as they are: 64 hex digits.
pub(crate) fn id(beginning: &str) -> String {
    format!("{beginning:0<64}")
}

pub(crate) fn command(daemon: &FakeDaemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
    command.arg("--config").arg(daemon.config()).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end. Returns its output, standard output first.
pub(crate) fn run(daemon: &FakeDaemon, arguments: &[&str]) -> (Output, String, String) {
    let output = command(daemon, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

fn pod(pod_id: &str, name: &str, handler: &str) -> v1::PodSandbox {
    v1::PodSandbox {
        id: id(pod_id),
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            namespace: "shop".into(),
            ..Default::default()
        }),
        state: v1::PodSandboxState::SandboxReady.into(),
        created_at: 1,
        runtime_handler: handler.into(),
        ..Default::default()
    }
}

fn container(container_id: &str, pod_id: &str, name: &str, state: v1::ContainerState) -> v1::Container {
    v1::Container {
        id: id(container_id),
        pod_sandbox_id: id(pod_id),
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 3 }),
        state: state.into(),
        created_at: 1,
        image: Some(v1::ImageSpec { image: "busybox:\x1b[2J1".into(), ..Default::default() }),
        ..Default::default()
    }
}

/// A daemon with a pod in a VM and one of the runtime behind it.
fn node() -> FakeDaemon {
    let daemon = FakeDaemon::start();
    let items = vec![pod("aa1", "web", ""), pod("bb1", "proxy", "runc")];
    daemon.answers("ListPodSandbox", &v1::ListPodSandboxResponse { items, ..Default::default() });
    let containers = vec![
        container("c1", "aa1", "app", ContainerRunning),
        container("c2", "aa1", "lost", ContainerUnknown),
        container("c3", "aa1", "init", ContainerExited),
        container("d1", "bb1", "proxy", ContainerRunning),
    ];
    daemon.answers("ListContainers", &v1::ListContainersResponse { containers, ..Default::default() });
    let condition = |kind: &str, status, message: &str| v1::RuntimeCondition {
        r#type: kind.into(),
        status,
        reason: "Reason".into(),
        message: message.into(),
    };
    let conditions =
        vec![condition("RuntimeReady", true, ""), condition("KvmReady", false, "/dev/kvm is\x07 gone")];
    let config =
        serde_json::json!({ "pods": [id("aa1")], "vms": { id("aa1"): { "memory_bytes": 128 << 20 } } });
    let status = v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions }),
        info: [("config".to_owned(), config.to_string())].into(),
        ..Default::default()
    };
    daemon.answers("Status", &status);
    let status = v1::ContainerStatus {
        id: id("c2"),
        metadata: Some(v1::ContainerMetadata { name: "lost".into(), attempt: 0 }),
        state: ContainerUnknown.into(),
        message: "the daemon ended\nwhile it started it".into(),
        ..Default::default()
    };
    daemon.answers(
        "ContainerStatus",
        &v1::ContainerStatusResponse { status: Some(status), ..Default::default() },
    );
    daemon
}

fn no_control_characters(text: &str) {
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
}

#[test]
fn ps_lists_the_pods_of_both_runtimes_and_says_why_a_state_is_unknown() {
    let daemon = node();
    let (output, text, warned) = run(&daemon, &["ps"]);
    assert!(output.status.success(), "{warned}");
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(&words[0][..4], ["NAMESPACE", "POD", "CONTAINER", "STATE"]);
    let shown = |row: &[&str]| [row[1], row[2], row[3], row[4], row[6]].map(str::to_owned);
    assert_eq!(shown(&words[1]), ["proxy", "proxy", "running", "3", "upstream/runc"]);
    assert_eq!(shown(&words[2]), ["web", "app", "running", "3", "vm"]);
    assert_eq!(shown(&words[3]), ["web", "lost", "UNKNOWN", "3", "vm"]);
    assert!(text.ends_with("shop/web/lost is UNKNOWN: the daemon ended\\nwhile it started it\n"), "{text}");
    assert!(text.contains("busybox:\\u{1b}[2J1") && !text.contains("init"), "{text}");
    assert_eq!(warned, "podvisor: KvmReady does not hold (Reason): /dev/kvm is\\u{7} gone\n");
    no_control_characters(&text);
    assert!(run(&daemon, &["ps", "-a"]).1.contains("init"));
    assert_eq!(run(&daemon, &["ps", "-n", "other"]).1.lines().count(), 1);
}

#[test]
fn pods_are_listed_though_the_daemons_status_hangs() {
    let daemon = node();
    daemon.hangs_at("Status");
    let (output, text, warned) = run(&daemon, &["ps"]);
    assert!(output.status.success() && text.contains("app"), "{text}{warned}");
    assert!(warned.contains("did not answer Status within"), "{warned}");
    assert_eq!(daemon.asked("Status"), 1);
}

#[test]
fn ps_for_programs_is_json_with_everything_in_it() {
    let daemon = node();
    let (_, text, _) = run(&daemon, &["ps", "-o", "json", "--state", "unknown"]);
    no_control_characters(&text);
    let pods: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(pods.as_array().unwrap().len(), 1);
    assert_eq!((&pods[0]["runtime"], &pods[0]["id"]), (&"vm".into(), &id("aa1").into()));
    let lost = &pods[0]["containers"][0];
    assert_eq!((&lost["state"], &lost["attempt"]), (&"unknown".into(), &3.into()));
    assert_eq!(lost["message"], "the daemon ended\nwhile it started it");
    assert_eq!(lost["image"], "busybox:\x1b[2J1");
}

#[test]
fn inspect_prints_pages_and_names_the_candidates_of_an_ambiguous_id() {
    let daemon = node();
    let status = v1::PodSandboxStatus {
        id: id("aa1"),
        metadata: pod("aa1", "web", "").metadata,
        ..Default::default()
    };
    let info = [("info".to_owned(), r#"{"unclean":"a disk"}"#.to_owned())].into();
    daemon.answers(
        "PodSandboxStatus",
        &v1::PodSandboxStatusResponse { status: Some(status), info, ..Default::default() },
    );
    for sought in ["aa1", "web", "shop/web"] {
        let (_, text, error) = run(&daemon, &["inspect", sought]);
        assert!(
            text.contains("kind: pod\n") && text.contains("  unclean: a disk\n"),
            "{sought}: {text}{error}"
        );
    }
    let (_, text, _) = run(&daemon, &["inspect", "shop/web/lost", "web", "-o", "json"]);
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&all[0]["state"], &all[1]["kind"]), (&"unknown".into(), &"pod".into()));
    let (output, text, error) = run(&daemon, &["inspect", "web", "c"]);
    assert_eq!((output.status.code(), text.as_str()), (Some(125), ""));
    assert!(
        error.starts_with("podvisor: \"c\" means several: container c10000000000 (shop/web/app), "),
        "{error}"
    );
    assert!(error.contains("(shop/web/init)") && !error.contains("d1"), "{error}");
    let (_, _, error) = run(&daemon, &["inspect", "nobody\x1b[2J"]);
    assert!(error.contains("has the id or the name \"nobody"), "{error}");
    no_control_characters(&error);
}

#[test]
fn without_a_daemon_the_error_names_the_socket() {
    let daemon = FakeDaemon::down();
    for arguments in [&["ps"][..], &["inspect", "web"], &["top"], &["events"]] {
        let (output, _, error) = run(&daemon, arguments);
        assert_eq!(output.status.code(), Some(125));
        let expected = format!("podvisor: no daemon serves on {}: ", daemon.socket().display());
        assert!(error.starts_with(&expected), "{arguments:?}: {error}");
        assert!(error.contains("systemctl start podvisor"), "{error}");
    }
}

#[test]
fn another_runtime_is_named_and_asked_nothing_further() {
    let daemon = FakeDaemon::start();
    daemon.is("containerd");
    for arguments in [&["ps"][..], &["inspect", "web"], &["top"], &["events"]] {
        let (output, _, error) = run(&daemon, arguments);
        assert_eq!(output.status.code(), Some(125));
        assert!(
            error.contains("is served by containerd 1.2.3 and not by podvisor"),
            "{arguments:?}: {error}"
        );
    }
    assert_eq!(daemon.asked("ListPodSandbox") + daemon.asked("GetContainerEvents"), 0);
}

#[test]
fn a_call_that_an_older_daemon_lacks_is_named() {
    let daemon = FakeDaemon::start();
    for (arguments, call) in [
        (&["ps"][..], "ListContainers"),
        (&["inspect", "web"], "ListPodSandbox"),
        (&["top"], "ListPodSandboxStats"),
        (&["events"], "GetContainerEvents"),
    ] {
        daemon.refuses(call, Status::unimplemented("unknown method"));
        let (output, _, error) = run(&daemon, arguments);
        daemon.answers(call, &());
        assert_eq!(output.status.code(), Some(125));
        assert!(error.contains(&format!("has no {call} (unknown method)")), "{arguments:?}: {error}");
    }
}

#[test]
fn a_refusal_that_quotes_a_guest_reaches_no_terminal_as_it_is() {
    let daemon = FakeDaemon::start();
    daemon.refuses("ListContainers", Status::internal("the guest said \x1b]0;x\x07"));
    let (_, _, error) = run(&daemon, &["ps"]);
    assert_eq!(error, "podvisor: ListContainers: the guest said \\u{1b}]0;x\\u{7}\n");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let daemon = node();
    let log = daemon.config().with_file_name("0.log");
    std::fs::write(&log, "2026-03-01T10:20:30.123Z stdout F a line\n").unwrap();
    let status = v1::ContainerStatus { log_path: log.display().to_string(), ..Default::default() };
    let status = v1::ContainerStatusResponse { status: Some(status), ..Default::default() };
    daemon.answers("ContainerStatus", &status);
    for arguments in [
        &["ps"][..],
        &["inspect", "lost"],
        &["top"],
        &["top", "-o", "json"],
        &["events"],
        &["logs", &id("c1")],
        &["runtimeclass", "--assumed"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        // `events` has nothing to write, and ends all the same.
        drop(reader);
        let child =
            command(&daemon, arguments).stdout(OwnedFd::from(writer)).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        assert!(!error.contains("panicked") && !error.contains("Broken pipe"), "{arguments:?}: {error}");
    }
}

fn stats(at_seconds: i64, cpu_ms: u64) -> v1::ListPodSandboxStatsResponse {
    let value = |value| Some(v1::UInt64Value { value });
    let cpu = v1::CpuUsage {
        timestamp: at_seconds * 1_000_000_000,
        usage_core_nano_seconds: value(cpu_ms * 1_000_000),
        ..Default::default()
    };
    let memory = v1::MemoryUsage { usage_bytes: value(96 << 20), ..Default::default() };
    let linux = v1::LinuxPodSandboxStats { cpu: Some(cpu), memory: Some(memory), ..Default::default() };
    let metadata = pod("aa1", "web", "").metadata;
    let attributes = v1::PodSandboxAttributes { id: id("aa1"), metadata, ..Default::default() };
    v1::ListPodSandboxStatsResponse {
        stats: vec![v1::PodSandboxStats { attributes: Some(attributes), linux: Some(linux), windows: None }],
    }
}

#[test]
fn top_without_a_terminal_is_one_page() {
    let daemon = node();
    daemon.answers("ListPodSandboxStats", &stats(1, 1));
    let (output, text, error) = run(&daemon, &["top"]);
    assert!(output.status.success(), "{error}");
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    // Both samples have the same time, as with a guest that does not answer.
    assert_eq!(words, ["shop", "web", "-", "96MiB", "128MiB", "-", "-"]);
    let (_, text, _) = run(&daemon, &["top", "-o", "json", "--sort", "memory"]);
    let pods: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&pods[0]["memoryGivenBytes"], &pods[0]["cpus"]),
        (&(128 << 20).into(), &serde_json::Value::Null)
    );
    let (output, _, error) = run(&daemon, &["top", "--interval", "0"]);
    assert!(!output.status.success() && error.contains("--interval"), "{error}");
}

#[test]
fn top_on_a_terminal_goes_on_when_the_daemon_is_started_anew() {
    let mut daemon = node();
    daemon.answers("ListPodSandboxStats", &stats(1, 1000));
    let mut top = OnTerminal::start(command(&daemon, &["top", "--interval", "1"]));
    top.until("96MiB");
    daemon.answers("ListPodSandboxStats", &stats(3, 2000));
    top.until("50.0%");
    daemon.kill();
    top.until("podvisor: no new values for ");
    // The last figures stay.
    top.until("50.0%");
    top.until("no daemon serves on ");
    daemon.answers("ListPodSandboxStats", &stats(5, 2500));
    daemon.serve();
    let meanwhile = top.until("25.0%");
    assert!(meanwhile.contains("50.0%") || meanwhile.contains("no new values"), "{meanwhile:?}");
    daemon.answers("ListPodSandboxStats", &stats(7, 4500));
    let screen = top.until("100.0%");
    assert!(!screen.rsplit("\x1b[H").next().unwrap().contains("no new values"), "{screen:?}");
}

fn event(container_id: &str, kind: v1::ContainerEventType) -> v1::ContainerEventResponse {
    let status = v1::PodSandboxStatus {
        id: id("aa1"),
        metadata: pod("aa1", "web", "").metadata,
        ..Default::default()
    };
    v1::ContainerEventResponse {
        container_id: id(container_id),
        container_event_type: kind.into(),
        created_at: 1_700_000_000_000_000_000,
        pod_sandbox_status: Some(status),
        containers_statuses: Vec::new(),
    }
}

/// Sends the event as soon as somebody listens.
fn send(daemon: &FakeDaemon, event: &v1::ContainerEventResponse) {
    let limit = Instant::now() + PATIENCE;
    while !daemon.sends(event) {
        assert!(Instant::now() < limit, "nobody listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn events_go_on_after_a_restart_and_say_that_some_may_be_lost() {
    for form in ["text", "json"] {
        let mut daemon = node();
        let mut child = command(&daemon, &["events", "-o", form]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut next = |words: &[&str]| {
            let line = lines.next().unwrap();
            assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
        };
        send(&daemon, &event("aa1", ContainerCreatedEvent));
        next(&["2023-11-14T22:13:20.000Z", "created", "shop", "web"]);
        send(&daemon, &event("c1", ContainerStoppedEvent));
        // The name comes from the list.
        next(&["stopped", "web", "app"]);
        daemon.kill();
        next(&["broken", "the daemon's events broke off"]);
        daemon.serve();
        next(&["resumed", "may have been lost"]);
        send(&daemon, &event("c1", ContainerCreatedEvent));
        next(&["created", "app"]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn events_of_other_pods_are_passed_over_where_one_is_asked_for() {
    let daemon = node();
    let mut child =
        command(&daemon, &["events", "-n", "shop", "-p", "bb"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    send(&daemon, &event("c1", ContainerCreatedEvent));
    let mut proxy = event("d1", ContainerStoppedEvent);
    proxy.pod_sandbox_status.as_mut().unwrap().id = id("bb1");
    send(&daemon, &proxy);
    assert!(lines.next().unwrap().contains("/proxy  d1"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_pod_is_killed_by_its_running_containers_and_by_no_other_signal() {
    let daemon = node();
    daemon.answers("StopContainer", &v1::StopContainerResponse {});
    let (output, stdout, _) = run(&daemon, &["kill", "web"]);
    assert!(output.status.success() && stdout.contains("killed"), "{stdout}");
    let request = v1::StopContainerRequest::decode(&*daemon.last("StopContainer")).unwrap();
    // One in an unknown state may run.
    assert_eq!((daemon.asked("StopContainer"), request.container_id, request.timeout), (2, id("c2"), 0));
    assert_eq!(daemon.asked("StopPodSandbox"), 0, "the pod stays");
    let (output, _, stderr) = run(&daemon, &["kill", "-s", "HUP", "web"]);
    assert!(!output.status.success() && stderr.contains("CRI has no call that sends HUP"), "{stderr}");
    let (_, _, stderr) = run(&daemon, &["kill", "-s", "NONE", "web"]);
    assert!(stderr.contains("\"NONE\" is no signal"), "{stderr}");
    let (output, stdout, stderr) = run(&daemon, &["kill", "init"]);
    assert!(!output.status.success() && stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("container shop/web/init: nothing runs there that could be killed"), "{stderr}");
    assert_eq!(daemon.asked("StopContainer"), 2);
}
