//! `podvisor logs` as a process, with a fake daemon: the end of a container's output, whatever becomes of the
//! container, its daemon or its log.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use proto_cri::v1;
use proto_cri::v1::ContainerState::{self, ContainerCreated, ContainerExited, ContainerRunning};
use tonic::Status;

use crate::fake::FakeDaemon;
use crate::people::{PATIENCE, command, id, run};

/// A daemon with one container, "c1", and the container's log.
struct Logged {
    daemon: FakeDaemon,
    log: PathBuf,
}

impl Logged {
    fn new(state: ContainerState) -> Logged {
        let daemon = FakeDaemon::start();
        let containers = vec![v1::Container { id: id("c1"), ..Default::default() }];
        daemon.answers("ListContainers", &v1::ListContainersResponse { containers, ..Default::default() });
        let log = daemon.config().with_file_name("0.log");
        let logged = Logged { daemon, log };
        logged.is(state);
        logged
    }

    fn is(&self, state: ContainerState) {
        let status = v1::ContainerStatus {
            id: id("c1"),
            state: state.into(),
            log_path: self.log.display().to_string(),
            ..Default::default()
        };
        let answer = v1::ContainerStatusResponse { status: Some(status), ..Default::default() };
        self.daemon.answers("ContainerStatus", &answer);
    }

    fn writes(&self, line: &str) {
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        writeln!(log, "2026-03-01T10:20:30.123Z stdout F {line}").unwrap();
    }

    /// Follows the log, and reads its first line.
    fn followed(&self) -> (Child, BufReader<ChildStdout>) {
        self.writes("first");
        let mut child = command(&self.daemon, &["logs", "-f", "c1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first, "first\n");
        (child, lines)
    }
}

/// Waits until it is true.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The rest of the output of a command that ends well.
fn rest(child: Child, mut lines: BufReader<ChildStdout>) -> String {
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rest
}

#[test]
fn the_last_lines_of_a_container_that_is_removed_are_printed() {
    let logged = Logged::new(ContainerRunning);
    let (child, lines) = logged.followed();
    let asked = logged.daemon.asked("ContainerStatus");
    logged.daemon.hangs_at("ContainerStatus");
    until("the state is asked for again", || logged.daemon.asked("ContainerStatus") > asked);
    // Between two looks it writes, ends, and is removed with its log.
    logged.writes("last");
    fs::remove_file(&logged.log).unwrap();
    logged.daemon.refuses("ContainerStatus", Status::not_found("no such container"));
    logged.daemon.goes_on();
    assert_eq!(rest(child, lines), "last\n");
}

#[test]
fn a_log_is_followed_beyond_a_restart_of_the_daemon() {
    let mut logged = Logged::new(ContainerRunning);
    let (mut child, lines) = logged.followed();
    logged.daemon.kill();
    let absent = UnixListener::bind(logged.daemon.socket()).unwrap();
    absent.set_nonblocking(true).unwrap();
    until("the daemon is missed", || {
        assert_eq!(child.try_wait().unwrap(), None, "it does not wait for the daemon");
        absent.accept().is_ok()
    });
    logged.writes("meanwhile");
    logged.is(ContainerExited);
    drop(absent);
    fs::remove_file(logged.daemon.socket()).unwrap();
    logged.daemon.serve();
    assert_eq!(rest(child, lines), "meanwhile\n");
}

#[test]
fn a_log_that_is_not_there_is_named() {
    let logged = Logged::new(ContainerExited);
    for arguments in [&["logs", "c1"][..], &["logs", "-f", "c1"]] {
        let (output, text, error) = run(&logged.daemon, arguments);
        assert_eq!((output.status.code(), text.as_str()), (Some(125), ""), "{error}");
        assert!(error.contains(&logged.log.display().to_string()), "{error}");
    }
    logged.is(ContainerRunning);
    assert_eq!(run(&logged.daemon, &["logs", "c1"]).0.status.code(), Some(125));
    // Other runtimes make it at the start.
    logged.is(ContainerCreated);
    assert_eq!(run(&logged.daemon, &["logs", "c1"]).0.status.code(), Some(0));
}
