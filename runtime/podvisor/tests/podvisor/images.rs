//! `podvisor images`, `pull`, `image inspect`, `image import` and `rmi` as processes, with a fake daemon.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use prost::Message;
use proto_cri::v1;
use proto_images::v1::layer::State as LayerState;
use proto_images::v1::{self as transfers, Progress, PullRequest, State};
use serde_json::Value;
use tonic::Status;

use crate::fake::FakeDaemon;

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

/// Runs a command to its end. Returns its output, standard output first.
fn run(daemon: &FakeDaemon, arguments: &[&str]) -> (Output, String, String) {
    texts(command(daemon, arguments).output().unwrap())
}

/// Runs a command with this standard input.
fn run_with(daemon: &FakeDaemon, arguments: &[&str], input: &[u8]) -> (Output, String, String) {
    let mut command = command(daemon, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    texts(child.wait_with_output().unwrap())
}

/// The last message of a transfer.
fn done() -> Progress {
    let layer = transfers::Layer {
        digest: format!("sha256:{:0<64}", "1a"),
        state: LayerState::Exists.into(),
        ..Default::default()
    };
    Progress {
        state: State::Done.into(),
        name: "registry/shop:1".into(),
        layers: vec![layer],
        images: vec![transfers::Image {
            id: format!("sha256:{:0<64}", "abc"),
            repo_tags: vec!["registry/shop:1".into()],
            ..Default::default()
        }],
        ..Default::default()
    }
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
    for arguments in [&["images"][..], &["image", "inspect", "a"], &["rmi", "a"], &["pull", "a"]] {
        let (output, _, error) = run(&daemon, arguments);
        assert_eq!(output.status.code(), Some(125));
        assert!(error.contains(daemon.socket().to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_pull_prints_a_line_for_each_step_or_the_id_alone() {
    let daemon = FakeDaemon::start();
    daemon.answers("Pull", &done());
    let (output, text, error) = run(&daemon, &["pull", "shop"]);
    assert!(output.status.success(), "{error}");
    assert_eq!(text, "1a0000000000: exists\npulled shop (abc000000000)\n");
    let (_, text, _) = run(&daemon, &["pull", "-q", "shop", "shop"]);
    assert_eq!(text, format!("sha256:{:0<64}\n", "abc").repeat(2));
    let request = PullRequest::decode(&daemon.last("Pull")[..]).unwrap();
    assert_eq!((request.image.as_str(), request.credentials), ("shop", None));

    daemon.refuses("Pull", Status::not_found("registry has no shop"));
    let (output, _, error) = run(&daemon, &["pull", "shop", "cart"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("shop: Pull: registry has no shop") && error.contains("cart: Pull"), "{error}");
}

#[test]
fn credentials_come_from_standard_input_or_from_a_logins_file() {
    let daemon = FakeDaemon::start();
    daemon.answers("Pull", &done());
    let given = || {
        let request = PullRequest::decode(&daemon.last("Pull")[..]).unwrap();
        request.credentials.map(|given| (given.username, given.password))
    };
    let of = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
    run_with(&daemon, &["pull", "--creds-stdin", "shop"], b"me:sec:ret\n");
    assert_eq!(given(), of("me", "sec:ret"));
    run(&daemon, &["pull", "--creds", "me:other", "shop"]);
    assert_eq!(given(), of("me", "other"));

    let home = daemon.config().parent().unwrap().to_owned();
    std::fs::create_dir(home.join(".docker")).unwrap();
    // "hub:h"
    let file = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOmg="}}}"#;
    std::fs::write(home.join(".docker/config.json"), file).unwrap();
    run(&daemon, &["pull", "shop"]);
    assert_eq!(given(), of("hub", "h"));
    run(&daemon, &["pull", "registry.example/shop"]);
    assert_eq!(given(), None, "they are docker.io's");

    for (arguments, expected) in [
        (&["pull", "--creds", "me", "shop"][..], "--creds-stdin reads it"),
        (&["pull", "--creds", "me:x", "shop", "r.example/a"], "the credentials are for one registry"),
        (&["pull", "--authfile", "/nowhere", "shop"], "/nowhere is not there"),
    ] {
        let (output, _, error) = run(&daemon, arguments);
        assert_eq!(output.status.code(), Some(125));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_archive_is_sent_from_a_file_and_from_standard_input() {
    let daemon = FakeDaemon::start();
    daemon.answers("Import", &done());
    let file = daemon.config().with_file_name("archive.tar");
    std::fs::write(&file, "the archive's bytes").unwrap();
    let (output, text, error) =
        run(&daemon, &["image", "import", file.to_str().unwrap(), "--name", "cart:2"]);
    assert!(output.status.success(), "{error}");
    assert!(text.ends_with("imported registry/shop:1 (abc000000000)\n"), "{text}");
    let sent = String::from_utf8_lossy(&daemon.last("Import")).into_owned();
    assert!(sent.contains("cart:2") && sent.contains("the archive's bytes"), "{sent:?}");

    let (_, text, _) = run_with(&daemon, &["image", "import", "-q", "-"], b"what is piped");
    assert_eq!(text, format!("sha256:{:0<64}\n", "abc"));
    assert!(String::from_utf8_lossy(&daemon.last("Import")).contains("what is piped"));

    let (output, _, error) = run(&daemon, &["image", "import", "/nowhere.tar"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("reading /nowhere.tar: No such file"), "{error}");
}

#[test]
fn an_older_daemon_without_the_service_is_an_error_that_says_so() {
    let daemon = FakeDaemon::start();
    let (output, _, error) = run(&daemon, &["pull", "shop", "cart"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("has no Pull") && error.contains("older than this command"), "{error}");
    assert_eq!(error.lines().count(), 1, "nobody is asked twice: {error}");
}

#[test]
fn arguments_that_are_no_text_have_an_error() {
    let daemon = FakeDaemon::start();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.tar");
    for (arguments, code) in [(&["image", "import"][..], 125), (&["rm"], 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podvisor"));
        // Among the first arguments, where the daemon has those of its own programs.
        command.args(arguments).arg(name).arg("--config").arg(daemon.config());
        assert_eq!(command.output().unwrap().status.code(), Some(code), "{arguments:?}");
    }
}
