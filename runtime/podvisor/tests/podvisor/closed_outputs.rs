//! Commands whose outputs nobody reads any more: they end quietly.

use std::process::{Command, Stdio};

use crate::fake::FakeDaemon;

/// The command's exit code, without a reader of its standard output or its standard error.
fn unread(daemon: &FakeDaemon, arguments: &[&str], reads_errors: bool) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
    command.arg("--config").arg(daemon.config()).args(arguments).stdin(Stdio::null());
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
