//! `podvisor images`, `image inspect` and `rmi` as processes, before a daemon that is none.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion, in its functions too")]

mod fake;

use std::process::{Command, Output, Stdio};

use proto_cri::v1;
use serde_json::Value;
use tonic::Status;

use fake::FakeDaemon;

fn command(daemon: &FakeDaemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
    command.arg("--config").arg(daemon.config()).args(arguments).stdin(Stdio::null());
    // No credentials of whoever runs the tests.
    for variable in ["REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "DOCKER_CONFIG"] {
        command.env_remove(variable);
    }
    command.env("HOME", daemon.config().parent().unwrap());
    command
}

fn texts(output: Output) -> (Output, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// Runs a command to its end; returns what it printed, and to standard error.
fn run(daemon: &FakeDaemon, arguments: &[&str]) -> (Output, String, String) {
    texts(command(daemon, arguments).output().unwrap())
}

fn image(tag: &str) -> v1::Image {
    v1::Image {
        id: format!("sha256:{:0<64}", "abc"),
        repo_tags: vec![format!("registry/shop:{tag}")],
        repo_digests: vec![format!("registry/shop@sha256:{:0<64}", "def")],
        size: 5 << 20,
        pinned: true,
        ..Default::default()
    }
}

#[test]
fn images_are_listed_for_people_and_for_programs() {
    let daemon = FakeDaemon::start();
    daemon.answers("ListImages", &v1::ListImagesResponse { images: vec![image("1\x1b[2J")] });
    let (output, text, _) = run(&daemon, &["images"]);
    assert!(output.status.success());
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words, ["registry/shop:1\\u{1b}[2J", "abc000000000", "5.0MiB", "yes"]);
    let (_, text, _) = run(&daemon, &["images", "--digests"]);
    assert!(text.contains("DIGEST") && text.contains("sha256:def000"), "{text}");
    let (_, text, _) = run(&daemon, &["images", "-o", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json[0]["sizeBytes"], &json[0]["pinned"]), (&(5 << 20).into(), &true.into()));
}

#[test]
fn an_image_is_inspected_and_one_that_is_not_there_is_an_error_with_its_name() {
    let daemon = FakeDaemon::start();
    let info = [("info".to_owned(), r#"{"config":{"cmd":["sh"]}}"#.to_owned())].into();
    daemon.answers("ImageStatus", &v1::ImageStatusResponse { image: Some(image("1")), info });
    let (output, text, _) = run(&daemon, &["image", "inspect", "shop"]);
    assert!(output.status.success() && text.contains("    cmd: sh\n"), "{text}");
    let (_, text, _) = run(&daemon, &["image", "inspect", "shop", "shop", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len(), 2);
    daemon.answers("ImageStatus", &v1::ImageStatusResponse::default());
    let (output, text, error) = run(&daemon, &["image", "inspect", "shop"]);
    assert_eq!((output.status.code(), text.as_str()), (Some(125), ""));
    assert!(error.contains("image shop is not on this node"), "{error}");
}

#[test]
fn each_removal_that_fails_has_its_line_and_the_others_are_done() {
    let daemon = FakeDaemon::start();
    daemon.answers("RemoveImage", &v1::RemoveImageResponse {});
    daemon.answers("ImageStatus", &v1::ImageStatusResponse { image: Some(image("1")), ..Default::default() });
    let (output, text, _) = run(&daemon, &["rmi", "one", "two"]);
    assert!(output.status.success() && text.matches("removed abc000000000").count() == 2, "{text}");
    assert_eq!(daemon.asked("RemoveImage"), 2);

    daemon.refuses("RemoveImage", Status::internal("the disk failed"));
    let (output, _, error) = run(&daemon, &["rmi", "one", "two"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("image one: RemoveImage: the disk failed"), "{error}");
    assert!(error.contains("image two: RemoveImage: the disk failed"), "{error}");

    daemon.answers("ImageStatus", &v1::ImageStatusResponse::default());
    let (output, text, error) = run(&daemon, &["rmi", "one"]);
    assert_eq!((output.status.code(), text.as_str()), (Some(125), ""));
    assert!(error.contains("image one is not on this node"), "{error}");
    assert_eq!(daemon.asked("RemoveImage"), 4, "nothing is removed that is not there");
}

#[test]
fn no_daemon_is_an_error_that_names_its_socket() {
    let daemon = FakeDaemon::down();
    for arguments in [&["images"][..], &["image", "inspect", "a"], &["rmi", "a"]] {
        let (output, _, error) = run(&daemon, arguments);
        assert_eq!(output.status.code(), Some(125));
        assert!(error.contains(daemon.socket().to_str().unwrap()), "{error}");
    }
}
