//! Sockets of the node in containers: reached if the handler names them, only by a process in the pod's
//! cgroup.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};
use tests_registry::Layer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::programs::{behind, call, elf, unless_negative};
use crate::vsock;

/// `port::HOST_SOCKET` of `proto_agent`, and the host's number.
const PORT: u32 = 1026;
const HOST_CID: u32 = 2;

/// Sends a word, ends its side, and prints the answer.
const ASK: &str = "echo question >&3; /shut; cat <&3";

/// A peer as the server sees it.
#[derive(Clone, Debug)]
struct Peer {
    uid: u32,
    pid: i32,
    cgroup: String,
}

/// A server of the node: it reads to the end, and sends the same bytes back.
struct Server {
    path: PathBuf,
    peers: Arc<Mutex<Vec<Peer>>>,
    task: AbortHandle,
}

impl Server {
    fn start(path: &Path) -> Server {
        let listener = UnixListener::bind(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
        let peers: Arc<Mutex<Vec<Peer>>> = Arc::default();
        let seen = peers.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let peer = stream.peer_cred().unwrap();
                let pid = peer.pid().unwrap();
                let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                seen.lock().unwrap().push(Peer { uid: peer.uid(), pid, cgroup });
                tokio::spawn(echo(stream));
            }
        });
        Server { path: path.to_owned(), peers, task: task.abort_handle() }
    }

    fn last(&self) -> Peer {
        self.peers.lock().unwrap().last().cloned().expect("somebody connected")
    }

    fn stop(self) {
        self.task.abort();
        fs::remove_file(&self.path).unwrap();
    }
}

async fn echo(mut stream: UnixStream) {
    let mut said = Vec::new();
    if stream.read_to_end(&mut said).await.is_ok() {
        let _ = stream.write_all(&said).await;
    }
}

/// A directory of the node readable by every user.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("sockets-").tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A host with these as `host_sockets` of the handler `sockets`.
async fn host(sockets: &[PathBuf]) -> Option<Host> {
    let mut host = Host::start().await?;
    let path = host.daemon.config().to_owned();
    let mut config = fs::read_to_string(&path).unwrap();
    config += &format!(
        "[[handler]]\nname = \"sockets\"\nmemory_mib = 64\nscratch_mib = 512\nhost_sockets = {sockets:?}\n"
    );
    fs::write(&path, config).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    Some(host)
}

/// An image with programs for these paths: each connects, and runs the line in `/line` with the connection as
/// number 3.
async fn image(host: &Host, client: &mut Client, places: &[(&str, &str)]) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    let mut programs = Layer::builder()
        .file("shut", 0o755, elf(&shut()))
        .file("line", 0o666, Vec::new())
        .file("dial", 0o755, vsock::dialer(HOST_CID, PORT, &[7; 32]));
    for (name, place) in places {
        programs = programs.file(name, 0o755, connect(place));
    }
    layers.push(programs.build());
    host.registry.push_image("e2e/sockets", "latest", layers, config).await.unwrap();
    client.pull(&host.image("e2e/sockets:latest")).await.unwrap()
}

/// Ends the sending side of the connection.
fn shut() -> Vec<u8> {
    [call(48, [3, 1, 0, 0]), call(60, [0; 4])].concat() // shutdown(3, SHUT_WR), exit
}

/// Connects to a unix socket, and becomes a shell running `/line`.
fn connect(path: &str) -> Vec<u8> {
    const SOCKET: u32 = 3;
    let mut address = 1u16.to_le_bytes().to_vec(); // AF_UNIX
    address.extend(path.as_bytes());
    address.push(0);
    let length = u32::try_from(address.len()).unwrap();
    let code = |address: u32, shell: u32, arguments: u32| {
        let mut code = call(41, [1, 1, 0, 0]); // socket(AF_UNIX, SOCK_STREAM, 0)
        code.extend(unless_negative(101));
        code.extend(call(42, [SOCKET, address, length, 0])); // connect
        code.extend(unless_negative(102));
        code.extend(call(59, [shell, arguments, 0, 0])); // execve
        code.extend(call(60, [103, 0, 0, 0]));
        code
    };
    let (shell, line) = (b"/bin/sh\0".as_slice(), b"/line\0".as_slice());
    // The length does not depend on the arguments.
    let address_at = behind(code(0, 0, 0).len());
    let shell_at = address_at + length;
    let line_at = shell_at + u32::try_from(shell.len()).unwrap();
    let arguments_at = line_at + u32::try_from(line.len()).unwrap();
    let mut body = code(address_at, shell_at, arguments_at);
    body.extend([address.as_slice(), shell, line].concat());
    body.extend([shell_at, line_at, 0].iter().flat_map(|word| u64::from(*word).to_le_bytes()));
    elf(&body)
}

fn mount(host_path: &Path, container_path: &str) -> v1::Mount {
    v1::Mount {
        host_path: host_path.display().to_string(),
        container_path: container_path.into(),
        ..Default::default()
    }
}

/// Connects to a socket in the container and runs the line, and returns its output.
async fn talk(client: &mut Client, container: &str, program: &str, line: &str) -> String {
    let command =
        format!("export PATH=/bin:/usr/bin:/sbin; echo '{line}' >/line; timeout 120 /{program}; true");
    client.sh(container, &command).await.unwrap()
}

/// Talks until the expected answer comes.
async fn talk_until(client: &mut Client, container: &str, program: &str, answer: &str) {
    until_seen(format!("{answer:?} as the answer to {program}"), async || {
        let said = talk(client, container, program, ASK).await;
        if said == answer { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test]
async fn a_container_reaches_the_sockets_that_its_handler_names_and_no_others() {
    let dir = directory();
    let at = |name: &str| dir.path().join(name);
    let Some(mut host) = host(&[at("a.sock"), at("later.sock")]).await else { return };
    let mut client = host.client();
    let places = [
        ("one", "/run/one.sock"),
        ("two", "/sockets/a.sock"),
        ("later", "/sockets/later.sock"),
        ("other", "/sockets/other.sock"),
    ];
    let image = image(&host, &mut client, &places).await;
    let server = Server::start(&at("a.sock"));
    let other = Server::start(&at("other.sock"));

    let parent = format!("/e2e-sockets-{}", std::process::id());
    let mut config = spec::pod("sockets", host.dir());
    config.linux.get_or_insert_default().cgroup_parent = parent.clone();
    let pod = client.run_pod_on(&config, "sockets").await.unwrap();

    let mut refused = spec::container("refused", &image, &["sleep", "100000"]);
    refused.mounts = vec![mount(&at("other.sock"), "/run/one.sock")];
    let error = client.create(&pod, refused).await.unwrap_err();
    assert!(error.message().contains("other.sock") && error.message().contains("host_sockets"), "{error}");

    let mut asking = spec::container("asking", &image, &["sleep", "100000"]);
    asking.mounts = vec![mount(&at("a.sock"), "/run/one.sock"), mount(dir.path(), "/sockets")];
    let container = client.run(&pod, asking).await.unwrap();
    for program in ["one", "two"] {
        assert_eq!(talk(&mut client, &container, program, ASK).await, "question\n", "{program}");
    }
    assert_eq!(talk(&mut client, &container, "other", ASK).await, "", "that one is on no list");
    assert!(other.peers.lock().unwrap().is_empty());
    let peer = server.last();
    assert_eq!(peer.uid, 65_534);
    let cgroup = format!("{parent}/podvisor-socket-");
    assert!(peer.cgroup.contains(&cgroup) && peer.cgroup.contains(&container), "{}", peer.cgroup);

    // Large transfers both ways, with the end of one side before the answer.
    let large = "head -c 3000000 /dev/urandom >/data; cat /data >&3; /shut; cmp - /data <&3 && echo same";
    assert_eq!(talk(&mut client, &container, "one", large).await, "same\n");

    // A socket created later, and a recreated one.
    let later = Server::start(&at("later.sock"));
    talk_until(&mut client, &container, "later", "question\n").await;
    server.stop();
    let server = Server::start(&at("a.sock"));
    assert_eq!(talk(&mut client, &container, "one", ASK).await, "question\n");
    talk_until(&mut client, &container, "two", "question\n").await;

    // A program dialling directly has no token, and gets nothing.
    let dialled = client.exec(&container, &["/dial"], 60).await.unwrap().exit_code;
    assert_ne!(u32::try_from(dialled).unwrap(), vsock::ANSWERED);

    // The pod's named user, and the state found by another daemon.
    let mut named = spec::container("named", &image, &["sleep", "100000"]);
    named.mounts = vec![mount(&at("a.sock"), "/run/one.sock")];
    let context = named.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.run_as_user = Some(v1::Int64Value { value: 1234 });
    let named = client.run(&pod, named).await.unwrap();
    assert_eq!(talk(&mut client, &named, "one", ASK).await, "question\n");
    assert_eq!(server.last().uid, 1234);
    let before = server.last().pid;
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    talk_until(&mut client, &named, "one", "question\n").await;
    talk_until(&mut client, &container, "two", "question\n").await;
    let connector = PathBuf::from(format!("/proc/{before}"));
    until("the connector of the daemon that was killed to end", async || !connector.exists()).await;

    let pid = server.last().pid;
    client.stop_pod(&pod).await.unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a connector is left");
    let left = fs::read_dir(format!("/sys/fs/cgroup{parent}")).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("podvisor-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    client.remove_pod(&pod).await.unwrap();
    let _ = fs::remove_dir(format!("/sys/fs/cgroup{parent}"));
    later.stop();
    host.stop().await.unwrap();
}
