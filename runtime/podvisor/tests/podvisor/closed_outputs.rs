//! Commands whose outputs nobody reads any more: lists end quietly, and work goes on.

use std::process::{Command, Stdio};

use proto_cri::v1;

use crate::fake::FakeDaemon;

fn command(daemon: &FakeDaemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
    command.arg("--config").arg(daemon.config()).args(arguments).stdin(Stdio::null());
    command
}

/// The command's exit code, without a reader of its standard output or its standard error.
fn unread(daemon: &FakeDaemon, arguments: &[&str], reads_errors: bool) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(daemon, arguments);
    match reads_errors {
        true => command.stdout(writer).stderr(Stdio::null()),
        false => command.stdout(Stdio::null()).stderr(writer),
    };
    command.status().unwrap().code()
}

#[test]
fn a_message_that_nobody_reads_ends_no_command() {
    let daemon = FakeDaemon::start();
    for arguments in [&["rm", "none"][..], &["rmi", "none"], &["logs", "none"]] {
        assert_eq!(unread(&daemon, arguments, false), Some(125), "{arguments:?}");
    }
    assert_eq!(unread(&daemon, &["run", "--ip", "::1", "image"], false), Some(2));
}

#[test]
fn a_configuration_that_nobody_reads_is_no_error() {
    let daemon = FakeDaemon::start();
    for arguments in [&["config"][..], &["config", "-o", "json"], &["config", "example"], &["schema"]] {
        assert_eq!(unread(&daemon, arguments, true), Some(0), "{arguments:?}");
    }
}

#[test]
fn work_goes_on_that_nobody_reads_about() {
    let daemon = FakeDaemon::start();
    let pod = |number: u32| v1::PodSandbox {
        id: number.to_string().repeat(64),
        metadata: Some(v1::PodSandboxMetadata { name: format!("p{number}"), ..Default::default() }),
        state: v1::PodSandboxState::SandboxNotready.into(),
        ..Default::default()
    };
    let items = (1..4).map(pod).collect();
    daemon.answers("ListPodSandbox", &v1::ListPodSandboxResponse { items, ..Default::default() });
    for call in ["StopPodSandbox", "RemovePodSandbox", "RemoveImage"] {
        daemon.answers(call, &());
    }
    let image = v1::Image { id: "sha256:1".into(), ..Default::default() };
    daemon.answers("ImageStatus", &v1::ImageStatusResponse { image: Some(image), ..Default::default() });
    for (arguments, call) in [
        (["rm", "p1", "p2", "p3"], "RemovePodSandbox"),
        (["stop", "p1", "p2", "p3"], "StopPodSandbox"),
        (["rmi", "a", "b", "c"], "RemoveImage"),
    ] {
        let before = daemon.asked(call);
        assert_eq!(unread(&daemon, &arguments, true), Some(0), "{arguments:?}");
        assert_eq!(daemon.asked(call) - before, 3, "{arguments:?}");
        // A disk without room is another matter: the work is done, and its output is not whole.
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(&daemon, &arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && said.contains("writing the output"), "{said}");
        assert_eq!(daemon.asked(call) - before, 6, "{arguments:?}");
    }
}
