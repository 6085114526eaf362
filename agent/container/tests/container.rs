//! Builds, starts and enters real containers like the agent, with busybox as their image. The tests need root
//! and cgroup v2 with every controller (`tests/node/run` gives both). Elsewhere they say so and pass over
//! themselves.
//!
//! This test has its own `main`, because the builder is the re-executed test binary. The program takes a
//! test's name, and lists the tests for nextest (<https://nexte.st/docs/design/custom-test-harnesses/>).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this file is a test")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use agent_container::cgroup::Cgroup;
use agent_container::exec::ExecTemplate;
use agent_container::launch::{
    ARGUMENT, Failure, FailureKind, Launch, LaunchKind, Report, START, receive_fds, send_stdio,
};
use agent_container::limits::{self, LimitError};
use agent_container::spec::{self, GuestParts};
use agent_container::users::{GroupsPolicy, ResolvedUser};
use agent_container::{builder, devices, users};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use oci_spec::runtime::Spec;
use proto_seccomp::Filter;
use serde_json::{Value, json};

const BUSYBOX: &str = "/bin/busybox";
/// Path of the cgroup of all containers, below the mount.
const PARENT: &str = "/podvisor-test";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == ARGUMENT) {
        std::process::exit(builder::run());
    }
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    if has("--list") {
        // No test is ignored.
        let names = TESTS.iter().map(|(name, _)| name).filter(|_| !has("--ignored"));
        names.for_each(|name| println!("{name}: test"));
        return;
    }
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let missing = ["cpu", "cpuset", "memory", "pids"].iter().find(|name| !controllers.contains(**name));
    if !nix::unistd::geteuid().is_root() || missing.is_some() || !Path::new(BUSYBOX).exists() {
        eprintln!("skipped: needs root, cgroup v2 with every controller, and a static {BUSYBOX}");
        return;
    }
    make_parent_cgroup();
    let asked = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let chosen: Vec<_> = TESTS.iter().filter(|(name, _)| asked.is_none_or(|asked| asked == name)).collect();
    for (name, test) in &chosen {
        let bench = Bench::new(name);
        test(&bench);
        println!("test {name} ... ok");
    }
    println!("test result: ok. {} passed; 0 failed; 0 ignored", chosen.len());
}

/// Makes the parent cgroup of the tests' containers, with the controllers for limits.
fn make_parent_cgroup() {
    let parent = Cgroup::new(PARENT);
    fs::create_dir_all(parent.directory()).unwrap();
    for directory in [Cgroup::new("/").directory(), parent.directory()] {
        // A process in the root's own cgroup does no harm there.
        fs::write(directory.join("cgroup.subtree_control"), "+cpu +cpuset +memory +pids").unwrap();
    }
}

type Test = (&'static str, fn(&Bench));

const TESTS: [Test; 20] = [
    ("a_container_is_held_until_it_is_started", a_container_is_held_until_it_is_started),
    ("limits_reach_the_cgroup", limits_reach_the_cgroup),
    ("limits_change_together_or_not_at_all", limits_change_together_or_not_at_all),
    ("a_missing_executable_is_created_and_not_started", a_missing_executable_is_created_and_not_started),
    ("a_forbidden_executable_is_created_and_not_started", a_forbidden_executable_is_created_and_not_started),
    ("an_exec_of_a_missing_executable_is_not_started", an_exec_of_a_missing_executable_is_not_started),
    ("an_exec_that_is_given_up_never_runs", an_exec_that_is_given_up_never_runs),
    ("a_pid_namespace_that_has_ended_is_named", a_pid_namespace_that_has_ended_is_named),
    (
        "an_exec_that_dies_before_its_start_has_its_own_code",
        an_exec_that_dies_before_its_start_has_its_own_code,
    ),
    (
        "an_execs_terminal_gets_its_owner_before_its_program",
        an_execs_terminal_gets_its_owner_before_its_program,
    ),
    ("an_exec_runs_as_the_user_and_under_the_filter", an_exec_runs_as_the_user_and_under_the_filter),
    ("a_forbidden_device_cannot_be_opened", a_forbidden_device_cannot_be_opened),
    ("a_mount_over_a_link_to_nothing_makes_its_target", a_mount_over_a_link_to_nothing_makes_its_target),
    ("a_volume_at_dev_keeps_its_own_nodes", a_volume_at_dev_keeps_its_own_nodes),
    ("a_dev_that_is_a_link_is_refused", a_dev_that_is_a_link_is_refused),
    ("mounts_over_proc_are_refused_by_their_path", mounts_over_proc_are_refused_by_their_path),
    ("variables_are_passed_on_in_their_order", variables_are_passed_on_in_their_order),
    ("a_filter_need_not_allow_what_the_builder_calls", a_filter_need_not_allow_what_the_builder_calls),
    ("hidden_paths_cannot_be_read_or_written", hidden_paths_cannot_be_read_or_written),
    ("home_is_where_the_containers_own_passwd_says", home_is_where_the_containers_own_passwd_says),
];

/// One test's directories.
struct Bench {
    directory: tempfile::TempDir,
    id: String,
}

struct Running {
    pid: i32,
    reports: BufReader<UnixStream>,
    stdout: fs::File,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let bench = Bench { directory, id: name.to_owned() };
        let rootfs = bench.rootfs();
        for part in ["bin", "proc", "dev", "tmp"] {
            fs::create_dir_all(rootfs.join(part)).unwrap();
        }
        fs::copy(BUSYBOX, rootfs.join("bin/busybox")).unwrap();
        for applet in ["sh", "id", "sleep", "cat", "hostname", "mknod", "head", "grep", "ls", "stat"] {
            std::os::unix::fs::symlink("busybox", rootfs.join("bin").join(applet)).unwrap();
        }
        fs::write(rootfs.join("bin/plain"), "").unwrap();
        bench
    }

    fn rootfs(&self) -> PathBuf {
        self.directory.path().join("rootfs")
    }

    fn cgroup(&self) -> Cgroup {
        Cgroup::new(&format!("{PARENT}/{}", self.id))
    }

    fn json(args: &[&str]) -> Value {
        let capabilities = ["CAP_KILL", "CAP_MKNOD"];
        json!({
            "ociVersion": "1.1.0",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "args": args, "env": ["PATH=/bin"], "cwd": "/",
                "noNewPrivileges": false,
                "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities }
            },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] }
            ],
            "linux": {
                "maskedPaths": ["/proc/kcore", "/proc/acpi", "/proc/no-such-file", "/proc/keys", "/proc/timer_list"],
                "readonlyPaths": ["/proc/sys", "/proc/no-such-directory"],
                "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "uts" }],
                "resources": {
                    "devices": [{ "allow": false, "access": "rwm" }, { "allow": true, "access": "m" }]
                },
                "seccomp": { "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    { "names": ["sethostname"], "action": "SCMP_ACT_ERRNO" }
                ] }
            }
        })
    }

    fn spec(&self, json: &Value, user: &ResolvedUser) -> Spec {
        let rootfs = self.rootfs();
        let cgroup = format!("{PARENT}/{}", self.id);
        let (rootfs, cgroup) = (&*rootfs, &*cgroup);
        let parts = GuestParts {
            rootfs,
            cgroup,
            user,
            terminal: false,
            pid_namespace: None,
            user_namespace: None,
            devices: &[],
        };
        spec::container(json.to_string().as_bytes(), parts).unwrap()
    }

    fn create(&self, args: &[&str]) -> Result<Running, Failure> {
        self.create_as(args, "0")
    }

    fn create_as(&self, args: &[&str], user: &str) -> Result<Running, Failure> {
        self.create_of(&Bench::json(args), user)
    }

    fn create_of(&self, json: &Value, user: &str) -> Result<Running, Failure> {
        let spec = self.spec(json, &users::resolve(user, "", "", GroupsPolicy::Merge).unwrap());
        let running = self.launch(LaunchKind::Create(Box::new(spec.clone())), filter(json))?;
        let rules = spec.linux().as_ref().unwrap().resources().as_ref().unwrap().devices().clone().unwrap();
        devices::restrict(&self.cgroup(), &rules).unwrap();
        Ok(running)
    }

    /// Makes a command, and holds it before exec.
    fn exec(&self, container: &Running, args: &[&str], user: &str) -> Result<Running, Failure> {
        self.exec_at(container, args, user, None)
    }

    fn exec_at(
        &self,
        container: &Running,
        args: &[&str],
        user: &str,
        console: Option<PathBuf>,
    ) -> Result<Running, Failure> {
        let json = Bench::json(args);
        let spec = self.spec(&json, &users::resolve(user, "", "", GroupsPolicy::Merge).unwrap());
        let request = json!({ "args": args }).to_string();
        let template = ExecTemplate::of(&spec, None).unwrap();
        let exec = template.exec(request.as_bytes(), container.pid, console.is_some()).unwrap();
        self.launch_at(LaunchKind::Exec(Box::new(exec)), filter(&json), console)
    }

    fn launch(&self, kind: LaunchKind, filter: Option<Arc<Filter>>) -> Result<Running, Failure> {
        self.launch_at(kind, filter, None)
    }

    fn launch_at(
        &self,
        kind: LaunchKind,
        filter: Option<Arc<Filter>>,
        console_socket: Option<PathBuf>,
    ) -> Result<Running, Failure> {
        let launch = Launch { kind, console_socket, limits: Vec::new(), filter };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        send_stdio(&ours, [null.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        drop(writer);
        (&ours).write_all(&launch.message().unwrap()).unwrap();
        let mut builder = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut reports = BufReader::new(ours);
        let mut line = Vec::new();
        reports.read_until(b'\n', &mut line).unwrap();
        assert!(!line.is_empty(), "the builder ended without a report");
        let outcome = match Report::parse(&line).unwrap() {
            Report::Ready { pid } => Ok(pid),
            Report::Failed(failure) | Report::ExecFailed(failure) => Err(failure),
        };
        builder.wait().unwrap();
        Ok(Running { pid: outcome?, reports, stdout: fs::File::from(OwnedFd::from(reader)) })
    }

    /// Starts a process with a refused executable, and returns the reason.
    fn refusal(&self, mut held: Running) -> Failure {
        held.reports.get_mut().write_all(START).unwrap();
        let mut line = Vec::new();
        held.reports.read_until(b'\n', &mut line).unwrap();
        match Report::parse(&line).unwrap() {
            Report::ExecFailed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    fn start(&self, running: &mut Running) {
        running.reports.get_mut().write_all(START).unwrap();
        let mut rest = Vec::new();
        running.reports.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let cgroup = self.cgroup();
        cgroup.kill().unwrap();
        while waitpid(None, None).is_ok() {}
        cgroup.remove().unwrap();
    }
}

impl Running {
    fn output(&mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        text
    }

    fn exit_code(&self) -> i32 {
        match waitpid(Pid::from_raw(self.pid), None).unwrap() {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            other => panic!("{other:?}"),
        }
    }
}

fn a_container_is_held_until_it_is_started(bench: &Bench) {
    let mut container = bench.create(&["sh", "-c", "echo ran; exit 3"]).unwrap();
    assert!(bench.cgroup().processes().unwrap().contains(&container.pid));
    bench.start(&mut container);
    assert_eq!(container.output(), "ran\n");
    assert_eq!(container.exit_code(), 3);
    assert!(bench.exec(&container, &["id"], "0").is_err(), "an exec in a container that has ended");
}

fn limits_reach_the_cgroup(bench: &Bench) {
    let _held = bench.create(&["id"]).unwrap();
    let wanted =
        [("memory.max", "67108864"), ("pids.max", "40"), ("cpu.max", "50000 100000"), ("cpuset.cpus", "0")];
    let wanted = wanted.map(|(file, value)| (file.to_owned(), value.to_owned()));
    limits::apply(&bench.cgroup(), &wanted.into_iter().collect()).unwrap();
    let read = |file: &str| fs::read_to_string(bench.cgroup().directory().join(file)).unwrap();
    assert_eq!(read("memory.max"), "67108864\n");
    assert_eq!(read("pids.max"), "40\n");
    assert_eq!(read("cpu.max"), "50000 100000\n");
    assert_eq!(read("cpuset.cpus"), "0\n");
}

fn limits_change_together_or_not_at_all(bench: &Bench) {
    let mut container = bench.create(&["sleep", "1000"]).unwrap();
    bench.start(&mut container);
    let cgroup = bench.cgroup();
    let read = |file: &str| fs::read_to_string(cgroup.directory().join(file)).unwrap();
    let change = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned()));
        limits::change(&cgroup, &files.collect())
    };
    change(&[("cpu.max", "max 100000"), ("cpu.weight", "59"), ("memory.max", "33554432")]).unwrap();
    assert_eq!((read("cpu.max"), read("cpu.weight")), ("max 100000\n".into(), "59\n".into()));
    assert_eq!(read("memory.max"), "33554432\n");
    let missing = change(&[("cpu.weight", "7"), ("memory.nonsense", "1")]).unwrap_err();
    assert!(matches!(&missing, LimitError::NoFile { file } if file == "memory.nonsense"), "{missing}");
    let refused = change(&[("cpu.weight", "8"), ("memory.max", "much")]).unwrap_err();
    assert!(matches!(&refused, LimitError::Refused { file, .. } if file == "memory.max"), "{refused}");
    let below = change(&[("cpu.weight", "9"), ("memory.max", "4096")]).unwrap_err();
    assert!(matches!(below, LimitError::BelowUse { limit: 4096, .. }), "{below}");
    assert_eq!((read("cpu.weight"), read("memory.max")), ("59\n".into(), "33554432\n".into()));
    cgroup.kill().unwrap();
}

fn a_missing_executable_is_created_and_not_started(bench: &Bench) {
    let container = bench.create(&["nosuch"]).unwrap();
    assert_eq!(bench.refusal(container).kind, FailureKind::ExecutableNotFound);
}

fn a_forbidden_executable_is_created_and_not_started(bench: &Bench) {
    let container = bench.create(&["/bin/plain"]).unwrap();
    assert_eq!(bench.refusal(container).kind, FailureKind::ExecutableNotRunnable);
}

fn an_exec_of_a_missing_executable_is_not_started(bench: &Bench) {
    let mut container = bench.create(&["sleep", "1000"]).unwrap();
    bench.start(&mut container);
    let exec = bench.exec(&container, &["nosuch"], "0").unwrap();
    assert_eq!(bench.refusal(exec).kind, FailureKind::ExecutableNotFound);
}

fn an_exec_that_is_given_up_never_runs(bench: &Bench) {
    let mut container = bench.create(&["sleep", "1000"]).unwrap();
    bench.start(&mut container);
    let exec = bench.exec(&container, &["sh", "-c", "echo x > /tmp/ran"], "0").unwrap();
    exec.reports.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(exec.exit_code(), 1);
    assert!(!bench.rootfs().join("tmp/ran").exists());
}

fn a_pid_namespace_that_has_ended_is_named(bench: &Bench) {
    let container = bench.create(&["id"]).unwrap();
    let namespace = fs::File::open(format!("/proc/{}/ns/pid", container.pid)).unwrap();
    bench.cgroup().kill().unwrap();
    assert_eq!(container.exit_code(), 128 + 9);
    let mut json = Bench::json(&["id"]);
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    json["linux"]["namespaces"][0] = json!({ "type": "pid", "path": path });
    let failure = bench.create_of(&json, "0").err().unwrap();
    assert!(failure.message.contains("its PID namespace has ended, or there is no memory"), "{failure}");
}

fn an_exec_that_dies_before_its_start_has_its_own_code(bench: &Bench) {
    let mut container = bench.create(&["sleep", "1000"]).unwrap();
    bench.start(&mut container);
    let mut exec = bench.exec(&container, &["id"], "0").unwrap();
    bench.cgroup().kill().unwrap();
    assert_eq!(exec.exit_code(), 128 + 9);
    // The end of the stream alone, as after an exec.
    let mut rest = Vec::new();
    exec.reports.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

fn an_execs_terminal_gets_its_owner_before_its_program(bench: &Bench) {
    let mut json = Bench::json(&["sleep", "1000"]);
    let options = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    let terminals =
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": options });
    json["mounts"].as_array_mut().unwrap().push(terminals);
    let mut container = bench.create_of(&json, "33:44").unwrap();
    bench.start(&mut container);
    let path = bench.directory.path().join("console");
    let listener = UnixListener::bind(&path).unwrap();
    let script = "stat -L -c %u /dev/stdin; echo x > /dev/stderr";
    let mut exec = bench.exec_at(&container, &["sh", "-c", script], "33:44", Some(path)).unwrap();
    let (connection, _) = listener.accept().unwrap();
    let master = receive_fds(&connection).unwrap().unwrap().pop().unwrap();
    let (program, own) = (format!("/proc/{}/exe", exec.pid), fs::read_link("/proc/self/exe").unwrap());
    assert_eq!(fs::read_link(program).unwrap(), own, "the program runs already");
    let other_side = rustix::pty::ioctl_tiocgptpeer(&master, rustix::pty::OpenptFlags::NOCTTY).unwrap();
    std::os::unix::fs::fchown(&other_side, Some(33), None).unwrap();
    bench.start(&mut exec);
    let mut lines = BufReader::new(fs::File::from(master)).lines();
    assert_eq!([lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()], ["33", "x"]);
    assert_eq!(exec.exit_code(), 0);
}

fn an_exec_runs_as_the_user_and_under_the_filter(bench: &Bench) {
    let mut container = bench.create_as(&["sleep", "1000"], "33:44").unwrap();
    bench.start(&mut container);
    let script = "id -u; id -g; grep -E '^(Seccomp|CapPrm|SigIgn):' /proc/self/status; hostname x";
    let mut exec = bench.exec(&container, &["sh", "-c", script], "33:44").unwrap();
    bench.start(&mut exec);
    let output = exec.output();
    assert!(output.starts_with("33\n44\n"), "{output}");
    let ignored = output.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let broken_pipe = 1 << (nix::libc::SIGPIPE - 1);
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & broken_pipe, 0, "{output}");
    assert!(output.contains("CapPrm:\t0000000000000000"), "{output}");
    assert!(output.contains("Seccomp:\t2"), "{output}");
    assert!(output.contains("sethostname"), "{output}");
    assert_eq!(exec.exit_code(), 1);
}

fn a_forbidden_device_cannot_be_opened(bench: &Bench) {
    // 1:1 is /dev/mem, 1:3 /dev/null.
    let script = "mknod /tmp/mem c 1 1; mknod /tmp/null c 1 3; echo x >/tmp/null && head -c1 /tmp/mem";
    let mut container = bench.create(&["sh", "-c", script]).unwrap();
    bench.start(&mut container);
    let output = container.output();
    assert!(output.contains("/tmp/mem: Operation not permitted"), "{output}");
    assert_eq!(container.exit_code(), 1);
}

/// A bind mount of a file with this content, to be mounted at `to`.
fn bound_file(bench: &Bench, to: &str, content: &str) -> Value {
    let source = bench.directory.path().join("source");
    fs::write(&source, content).unwrap();
    json!({ "destination": to, "type": "bind", "source": source, "options": ["rbind", "rprivate", "ro"] })
}

fn a_mount_over_a_link_to_nothing_makes_its_target(bench: &Bench) {
    fs::create_dir(bench.rootfs().join("etc")).unwrap();
    std::os::unix::fs::symlink("../run/stub/resolv.conf", bench.rootfs().join("etc/resolv.conf")).unwrap();
    let mut json = Bench::json(&["cat", "/etc/resolv.conf"]);
    json["mounts"].as_array_mut().unwrap().push(bound_file(
        bench,
        "/etc/resolv.conf",
        "nameserver 10.0.0.10\n",
    ));
    let mut container = bench.create_of(&json, "0").unwrap();
    bench.start(&mut container);
    assert_eq!(container.output(), "nameserver 10.0.0.10\n");
    assert_eq!(fs::read(bench.rootfs().join("run/stub/resolv.conf")).unwrap(), b"");
}

fn a_volume_at_dev_keeps_its_own_nodes(bench: &Bench) {
    let mut json = Bench::json(&["sh", "-c", "ls /dev; [ -L /dev/fd ] || echo no links"]);
    let volume = bench.directory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("mine"), "").unwrap();
    // Covers masked paths.
    let (mode, number) = (rustix::fs::Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3));
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, volume.join("null"), kind, mode, number).unwrap();
    let mount = json!({ "destination": "/dev", "type": "bind", "source": volume, "options": ["rbind"] });
    json["mounts"][1] = mount;
    let mut container = bench.create_of(&json, "0").unwrap();
    bench.start(&mut container);
    assert_eq!(container.output(), "mine\nnull\nno links\n");
}

fn a_dev_that_is_a_link_is_refused(bench: &Bench) {
    fs::remove_dir(bench.rootfs().join("dev")).unwrap();
    std::os::unix::fs::symlink("../../../tmp", bench.rootfs().join("dev")).unwrap();
    let failure = bench.create(&["id"]).err().unwrap();
    assert!(failure.message.contains("cannot mount /dev: the image has a link"), "{failure}");
}

fn mounts_over_proc_are_refused_by_their_path(bench: &Bench) {
    std::os::unix::fs::symlink("/proc/sys", bench.rootfs().join("innocent")).unwrap();
    for place in ["/proc/version", "/proc/new", "/innocent/kernel/hostname"] {
        let mut json = Bench::json(&["id"]);
        json["mounts"].as_array_mut().unwrap().push(bound_file(bench, place, "x"));
        let failure = bench.create_of(&json, "0").err().unwrap();
        assert!(failure.message.contains(&format!("cannot mount {place}: /proc/")), "{failure}");
    }
    // lxcfs covers these.
    let mut json = Bench::json(&["cat", "/proc/uptime"]);
    json["mounts"].as_array_mut().unwrap().push(bound_file(bench, "/proc/uptime", "1 1\n"));
    let mut container = bench.create_of(&json, "0").unwrap();
    bench.start(&mut container);
    assert_eq!(container.output(), "1 1\n");
}

/// The filter of a container with this specification.
fn filter(json: &Value) -> Option<Arc<Filter>> {
    let rules = serde_json::from_value(json["linux"]["seccomp"].clone()).unwrap();
    Some(Arc::new(Filter::compile(&rules).unwrap()))
}

fn variables_are_passed_on_in_their_order(bench: &Bench) {
    let listed = ["Z=1", "PATH=/bin", "A=first", "=x", "NAKED", "HOME=/", "A=b=c"];
    let passed = ["Z=1", "PATH=/bin", "=x", "NAKED", "HOME=/", "A=b=c"];
    let mut json = Bench::json(&["cat", "/proc/self/environ"]);
    json["process"]["env"] = json!(listed);
    let mut container = bench.create_of(&json, "0").unwrap();
    bench.start(&mut container);
    assert_eq!(container.output().split_terminator('\0').collect::<Vec<_>>(), passed);
}

fn a_filter_need_not_allow_what_the_builder_calls(bench: &Bench) {
    let mut json = Bench::json(&["sleep", "1000"]);
    let calls = [
        "accept4",
        "read",
        "recvfrom",
        "sendto",
        "sendmsg",
        "capset",
        "setresuid",
        "setgroups",
        "setsid",
        "seccomp",
    ];
    let rule = json!([{ "names": calls, "action": "SCMP_ACT_KILL_PROCESS" }]);
    json["linux"]["seccomp"]["syscalls"] = rule;
    let mut container = bench.create_of(&json, "33").unwrap();
    bench.start(&mut container);
    json["process"]["args"] = json!(["id", "-u"]);
    let spec = bench.spec(&json, &users::resolve("33", "", "", GroupsPolicy::Merge).unwrap());
    let exec = ExecTemplate::of(&spec, None)
        .unwrap()
        .exec(br#"{"args":["id","-u"]}"#, container.pid, false)
        .unwrap();
    let mut exec = bench.launch(LaunchKind::Exec(Box::new(exec)), filter(&json)).unwrap();
    bench.start(&mut exec);
    assert_eq!(exec.output(), "33\n");
    bench.cgroup().kill().unwrap();
}

fn home_is_where_the_containers_own_passwd_says(bench: &Bench) {
    fs::create_dir(bench.rootfs().join("etc")).unwrap();
    fs::write(bench.rootfs().join("etc/passwd"), "web:x:33:33::/image:/bin/sh\n").unwrap();
    let mut json = Bench::json(&["sh", "-c", "echo $HOME"]);
    let passwd = bound_file(bench, "/etc/passwd", "web:x:33:33::/mounted:/bin/sh\n");
    json["mounts"].as_array_mut().unwrap().push(passwd);
    let mut container = bench.create_of(&json, "33").unwrap();
    bench.start(&mut container);
    assert_eq!(container.output(), "/mounted\n");
}

fn hidden_paths_cannot_be_read_or_written(bench: &Bench) {
    let script =
        "cat /proc/kcore /proc/timer_list; ls /proc/acpi 2>/dev/null; echo 1 > /proc/sys/kernel/panic";
    let mut container = bench.create(&["sh", "-c", script]).unwrap();
    bench.start(&mut container);
    let output = container.output();
    assert!(output.ends_with("Read-only file system\n") && output.lines().count() == 1, "{output}");
}
