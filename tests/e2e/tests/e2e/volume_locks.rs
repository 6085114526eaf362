//! File locks and extended attributes of volumes, between pods and the node. The programs lie in the volume
//! itself, and the node runs them too.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::traces::Traces;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

use crate::programs::{behind, call, elf, unless_negative};

/// Exit status of a program after a refused call.
const REFUSED: u32 = 9;

/// System calls (arch/x86/entry/syscalls/syscall_64.tbl).
const WRITE: u32 = 1;
const OPEN: u32 = 2;
const PAUSE: u32 = 34;
const EXIT: u32 = 60;
const FCNTL: u32 = 72;
const FLOCK: u32 = 73;
const SETXATTR: u32 = 188;
const GETXATTR: u32 = 191;

/// The locked file, from the root of a container and from the directory above the volume.
const PATH: &[u8] = b"data/file\0";
const VALUE: &[u8] = b"from a pod";

/// How a program asks for a lock.
#[derive(Clone, Copy)]
enum Ask {
    /// fcntl(2), the whole file to be written.
    Range { waits: bool },
    /// flock(2), exclusive.
    Whole { waits: bool },
}

/// A program of calls. Their arguments are after its code, at the offsets added by `code` to its address.
fn program(code: impl Fn(u32) -> Vec<u8>, data: &[u8]) -> Vec<u8> {
    // The length does not depend on the address.
    let mut body = code(behind(code(0).len()));
    body.extend(data);
    elf(&body)
}

/// A system call with the last result as its first argument.
fn call_on_result(number: u32, second: u32, third: u32) -> Vec<u8> {
    let mut code = vec![0x89, 0xc7]; // mov edi, eax
    for (load, value) in [(0xbe, second), (0xba, third), (0xb8, number)] {
        code.push(load);
        code.extend(value.to_le_bytes());
    }
    code.extend([0x0f, 0x05]); // syscall
    code
}

/// A program taking a lock and holding it, or ending at once.
fn locker(ask: Ask, holds: bool) -> Vec<u8> {
    const READ_AND_WRITE: u32 = 2;
    // F_WRLCK of the whole file: a type, and zeros.
    let mut data = [&1u16.to_le_bytes()[..], &[0; 30]].concat();
    let path = u32::try_from(data.len()).unwrap();
    data.extend(PATH);
    let code = |at: u32| {
        let mut code = call(OPEN, [at + path, READ_AND_WRITE, 0, 0]);
        code.extend(unless_negative(1));
        code.extend(match ask {
            Ask::Range { waits } => call_on_result(FCNTL, if waits { 7 } else { 6 }, at),
            Ask::Whole { waits } => call_on_result(FLOCK, if waits { 2 } else { 6 }, 0),
        });
        code.extend(unless_negative(REFUSED));
        if holds {
            code.extend(call(PAUSE, [0; 4]));
        }
        code.extend(call(EXIT, [0; 4]));
        code
    };
    program(code, &data)
}

/// A program setting an attribute of the file, or printing its value.
fn attribute(name: &str, sets: bool) -> Vec<u8> {
    let length = u32::try_from(VALUE.len()).unwrap();
    let data = [PATH, VALUE, name.as_bytes(), b"\0"].concat();
    let path_bytes = u32::try_from(PATH.len()).unwrap();
    let code = |path: u32| {
        let value = path + path_bytes;
        let asked = if sets { SETXATTR } else { GETXATTR };
        // The register of the fifth argument, flags of setxattr(2), is zero from the start.
        let mut code = call(asked, [path, value + length, value, length]);
        code.extend(unless_negative(REFUSED));
        if !sets {
            code.extend(call(WRITE, [1, value, length, 0]));
        }
        code.extend(call(EXIT, [0; 4]));
        code
    };
    program(code, &data)
}

/// A directory of the node with a file and programs in it.
struct Volume(tempfile::TempDir);

impl Volume {
    fn new() -> Volume {
        let volume = Volume(tempfile::Builder::new().prefix("locks-").tempdir().unwrap());
        fs::create_dir(volume.data()).unwrap();
        fs::write(volume.data().join("file"), "content").unwrap();
        volume.put("try-range", locker(Ask::Range { waits: false }, false));
        volume.put("try-whole", locker(Ask::Whole { waits: false }, false));
        volume.put("hold-range", locker(Ask::Range { waits: false }, true));
        volume.put("hold-whole", locker(Ask::Whole { waits: false }, true));
        volume.put("wait-range", locker(Ask::Range { waits: true }, true));
        volume.put("wait-whole", locker(Ask::Whole { waits: true }, true));
        volume
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn put(&self, name: &str, program: Vec<u8>) {
        let path = self.data().join(name);
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a program on the node, and returns its status and output.
    fn run(&self, name: &str) -> (Option<i32>, Vec<u8>) {
        loop {
            match Command::new(self.data().join(name)).current_dir(self.0.path()).output() {
                // Another test's child has the file open until it executes its own program.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => continue,
                output => {
                    let output = output.unwrap();
                    return (output.status.code(), output.stdout);
                }
            }
        }
    }

    fn mounts(&self) -> Vec<v1::Mount> {
        let host_path = self.data().display().to_string();
        vec![v1::Mount { host_path, container_path: "/data".into(), ..Default::default() }]
    }

    fn container(&self, name: &str, image: &str, command: &[&str]) -> v1::ContainerConfig {
        v1::ContainerConfig { mounts: self.mounts(), ..spec::container(name, image, command) }
    }
}

async fn status_of(client: &mut Client, container: &str, name: &str) -> i32 {
    client.exec(container, &[&format!("/data/{name}")], 60).await.unwrap().exit_code
}

/// Waits until a lock is refused to the container, or is not any more.
async fn until(client: &mut Client, container: &str, name: &str, wanted: u32) {
    let wanted = i32::try_from(wanted).unwrap();
    until_seen(format!("{name} to end with {wanted}"), async || {
        let status = status_of(client, container, name).await;
        if status == wanted { Ok(()) } else { Err(status) }
    })
    .await;
}

/// Waits until the container's first process sleeps.
async fn until_asleep(client: &mut Client, container: &str) {
    until_seen("the container's first process to sleep", async || {
        let stat = client.sh(container, "cat /proc/1/stat").await.unwrap();
        if stat.contains(") S ") { Ok(()) } else { Err(stat) }
    })
    .await;
}

#[tokio::test]
async fn two_pods_and_the_node_exclude_each_other_by_fcntl_and_by_flock() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = Volume::new();
    let first = client.run_pod(&spec::pod("first", host.dir())).await.unwrap();
    let second = client.run_pod(&spec::pod("second", host.dir())).await.unwrap();
    let other = client.run(&second, volume.container("other", &image, &["sleep", "3600"])).await.unwrap();
    for kind in ["range", "whole"] {
        let (tried, held) = (format!("try-{kind}"), format!("/data/hold-{kind}"));
        assert_eq!(status_of(&mut client, &other, &tried).await, 0);
        assert_eq!(volume.run(&tried).0, Some(0));
        let holder = client.run(&first, volume.container(kind, &image, &[&held])).await.unwrap();
        until(&mut client, &other, &tried, REFUSED).await;
        assert_eq!(volume.run(&tried).0, Some(REFUSED.try_into().unwrap()));
        // The kinds do not see each other.
        let unlike = if kind == "range" { "try-whole" } else { "try-range" };
        assert_eq!(status_of(&mut client, &other, unlike).await, 0);
        client.stop(&holder, 0).await.unwrap();
        assert_eq!(status_of(&mut client, &other, &tried).await, 0);
        assert_eq!(volume.run(&tried).0, Some(0));
    }
    for pod in [first, second] {
        client.remove_pod(&pod).await.unwrap();
    }
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_container_that_waits_for_a_lock_of_another_pod_gets_it_or_is_stopped() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volume = Volume::new();
    let first = client.run_pod(&spec::pod("first", host.dir())).await.unwrap();
    let second = client.run_pod(&spec::pod("second", host.dir())).await.unwrap();
    let other = client.run(&second, volume.container("other", &image, &["sleep", "3600"])).await.unwrap();
    for kind in ["range", "whole"] {
        let (tried, held, waited) =
            (format!("try-{kind}"), format!("/data/hold-{kind}"), format!("/data/wait-{kind}"));
        let holder = client.run(&first, volume.container(kind, &image, &[&held])).await.unwrap();
        until(&mut client, &other, &tried, REFUSED).await;
        let stopped = volume.container(&format!("stopped-{kind}"), &image, &[&waited]);
        let stopped = client.run(&second, stopped).await.unwrap();
        let patient = volume.container(&format!("patient-{kind}"), &image, &[&waited]);
        let patient = client.run(&second, patient).await.unwrap();
        for container in [&stopped, &patient] {
            until_asleep(&mut client, container).await;
        }
        client.stop(&stopped, 1).await.unwrap();
        assert_eq!(client.status(&stopped).await.unwrap().exit_code, 137);
        client.remove(&stopped).await.unwrap();
        // The pod's other containers have not noticed.
        assert_eq!(client.sh(&other, "cat /data/file").await.unwrap(), "content");
        client.stop(&holder, 0).await.unwrap();
        until(&mut client, &other, &tried, REFUSED).await;
        assert_eq!(client.status(&patient).await.unwrap().state(), v1::ContainerState::ContainerRunning);
        client.stop(&patient, 0).await.unwrap();
        until(&mut client, &other, &tried, 0).await;
    }
    for pod in [first, second] {
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn attributes_that_one_pod_sets_are_seen_in_another_and_on_the_node() {
    let Some(host) = Host::start().await else { return };
    let volume = Volume::new();
    for (name, program) in [
        ("set", attribute("user.podvisor", true)),
        ("get", attribute("user.podvisor", false)),
        ("label", attribute("security.podvisor", true)),
        ("trust", attribute("trusted.podvisor", true)),
    ] {
        volume.put(name, program);
    }
    if volume.run("set").0 != Some(0) {
        eprintln!("passed over: the test's file system has no extended attributes");
        return;
    }
    fs::remove_file(volume.data().join("file")).unwrap();
    fs::write(volume.data().join("file"), "content").unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut containers = Vec::new();
    for name in ["first", "second"] {
        let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
        let sleeper = volume.container("main", &image, &["sleep", "3600"]);
        containers.push((client.run(&pod, sleeper).await.unwrap(), pod));
    }
    let refused = i32::try_from(REFUSED).unwrap();
    let (one, two) = (&containers[0].0, &containers[1].0);
    assert_eq!(status_of(&mut client, two, "get").await, refused);
    assert_eq!(status_of(&mut client, one, "set").await, 0);
    assert_eq!(client.exec(two, &["/data/get"], 60).await.unwrap().stdout, VALUE);
    assert_eq!(volume.run("get"), (Some(0), VALUE.to_vec()));
    // A label trusted by the node's kernel.
    for name in ["label", "trust"] {
        assert_eq!(status_of(&mut client, one, name).await, refused, "{name}");
    }
    for (_, pod) in &containers {
        client.remove_pod(pod).await.unwrap();
    }
    host.stop().await.unwrap();
}
