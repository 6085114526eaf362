//! Sockets of the node: which ones a container reaches, and none without a token.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_connector::ConnectError;
use runtime_spec::{ContainerSpec, Mount, SocketPlace, SocketToken};
use tokio::sync::Notify;

use super::{Script, World, container, life, pod};
use crate::PodErrorKind;
use crate::backend::{BackendError, Connector, ConnectorSpec, Looked, NodeSockets, Sockets};
use crate::sockets::find::FoundSocket;
use crate::volumes::directory_changes::DirectoryChanges;

/// The node's sockets are files of the test's; connectors are the script's.
#[derive(Debug)]
pub(crate) struct FakeSockets {
    script: Arc<Script>,
    files: NodeSockets,
}

impl FakeSockets {
    pub(crate) fn new(script: Arc<Script>) -> FakeSockets {
        let pool = || Pool::new("sockets", 4);
        let directories = Arc::new(DirectoryChanges::arrivals());
        let files = NodeSockets { paths: pool(), kernel: pool(), directories, cgroup_root: "/none".into() };
        FakeSockets { script, files }
    }
}

#[async_trait]
impl Sockets for FakeSockets {
    async fn find(
        &self,
        allowed: Vec<PathBuf>,
        mounts: Vec<(usize, PathBuf)>,
    ) -> Result<Vec<FoundSocket>, BackendError> {
        self.script.step("sockets.find").await?;
        self.files.find(allowed, mounts).await
    }

    async fn look(&self, paths: Vec<PathBuf>, follower: Arc<Notify>) -> Result<Looked, BackendError> {
        self.files.look(paths, follower).await
    }

    async fn start(&self, spec: &ConnectorSpec) -> Result<Arc<dyn Connector>, BackendError> {
        self.script.step("connector.start").await?;
        self.script.state().connectors_lost = false;
        Ok(Arc::new(FakeConnector { script: self.script.clone(), spec: spec.clone() }))
    }

    async fn clear(&self, _: &ConnectorSpec) -> Result<(), BackendError> {
        self.script.step("connector.clear").await
    }
}

#[derive(Debug)]
struct FakeConnector {
    script: Arc<Script>,
    spec: ConnectorSpec,
}

#[async_trait]
impl Connector for FakeConnector {
    async fn connect(&self, path: &Path, stream: OwnedFd) -> Result<(), ConnectError> {
        if self.script.state().connectors_lost {
            return Err(ConnectError::Lost);
        }
        let server = UnixStream::connect(path).map_err(ConnectError::Refused)?;
        let ConnectorSpec { container_id, user, .. } = &self.spec;
        let connection = (container_id.clone(), user.to_string(), path.to_owned());
        self.script.state().connections.push(connection);
        // One word to the caller is proof enough.
        drop(server);
        UnixStream::from(stream).write_all(b"connected").map_err(ConnectError::Refused)
    }

    fn is_lost(&self) -> bool {
        self.script.state().connectors_lost
    }
}

/// A world with a handler for `a.sock`, served by a program, and for `later/b.sock`, not yet served.
async fn world() -> (World, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let listener = UnixListener::bind(path.join("a.sock")).unwrap();
    let script = Script::default();
    script.state().host_sockets = vec![path.join("a.sock"), path.join("later/b.sock")];
    (World::made_with(dir, script).await, listener)
}

fn mounting(name: &str, host_paths: &[&Path]) -> ContainerSpec {
    let mount = |(number, host_path): (usize, &&Path)| Mount {
        host_path: host_path.display().to_string(),
        container_path: format!("/mnt/{number}"),
        ..Mount::default()
    };
    ContainerSpec { mounts: host_paths.iter().enumerate().map(mount).collect(), ..container(name) }
}

/// The tokens of the last container.
fn tokens(world: &World) -> Vec<SocketToken> {
    let (plan, _) = world.script.state().created.clone().unwrap();
    plan.host_sockets.iter().map(|socket| socket.token).collect()
}

/// Opens a stream as a program does, sends this, and returns the answer.
async fn dial(world: &World, said: &[u8]) -> String {
    let (mut program, host) = UnixStream::pair().unwrap();
    program.write_all(said).unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    world.script.state().program_streams.push_back(host);
    world.script.dialled.notify_one();
    let hearing = tokio::task::spawn_blocking(move || {
        let mut heard = String::new();
        program.read_to_string(&mut heard).unwrap();
        heard
    });
    tokio::time::timeout(Duration::from_secs(30), hearing).await.unwrap().unwrap()
}

#[tokio::test]
async fn sockets_of_the_list_are_led_to_and_only_with_their_tokens() {
    let (world, _listener) = world().await;
    let dir = world.dir.path().canonicalize().unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let spec = mounting("app", &[&dir.join("a.sock"), &dir]);
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    let (plan, _) = world.script.state().created.clone().unwrap();
    let places: Vec<_> =
        plan.host_sockets.iter().map(|socket| (socket.mount, socket.place.clone())).collect();
    let directory =
        |sub_path: &str| SocketPlace::Directory { directory: "/mnt/1".into(), sub_path: sub_path.into() };
    let source = "/run/podvisor/host-sockets/0".to_owned();
    let expected =
        [(0, SocketPlace::Mount(source)), (1, directory("a.sock")), (1, directory("later/b.sock"))];
    assert_eq!(places, expected);
    assert!(plan.shared_mounts, "the directory is the host's");
    let [first, second, missing] = tokens(&world).try_into().unwrap();
    for said in [&[][..], b"short", &[0; 32]] {
        assert_eq!(dial(&world, said).await, "", "{said:?}");
    }
    assert_eq!(world.script.count("connector.start"), 0);
    assert_eq!(dial(&world, &first.0).await, "connected");
    assert_eq!(dial(&world, &second.0).await, "connected");
    assert_eq!(dial(&world, &missing.0).await, "", "nobody serves that one");
    assert_eq!(world.script.count("connector.start"), 1);
    let connection = (id.clone(), "65534:65534:".to_owned(), dir.join("a.sock"));
    assert_eq!(world.script.state().connections, [connection.clone(), connection]);
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(dial(&world, &first.0).await, "", "the container is gone");
    world.until(|world| world.script.count("connector.clear") == 1).await;
    world.pods.remove(&pod_id).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_connector_that_has_ended_is_started_again() {
    let (world, _listener) = world().await;
    let dir = world.dir.path().canonicalize().unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("app", &[&dir.join("a.sock")])).await.unwrap();
    let token = tokens(&world)[0];
    assert_eq!(dial(&world, &token.0).await, "connected");
    world.script.state().connectors_lost = true;
    assert_eq!(dial(&world, &token.0).await, "connected");
    assert_eq!(world.script.count("connector.start"), 2);
}

#[tokio::test]
async fn a_socket_that_is_made_anew_is_reported_to_the_guest() {
    let (world, listener) = world().await;
    let dir = world.dir.path().canonicalize().unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, mounting("app", &[&dir])).await.unwrap();
    let attached =
        |count: usize| move |world: &World| world.script.count("agent.attach_host_sockets") == count;
    world.until(attached(1)).await;
    std::fs::remove_file(dir.join("a.sock")).unwrap();
    drop(listener);
    let _listener = UnixListener::bind(dir.join("a.sock")).unwrap();
    world.until(attached(2)).await;
    std::fs::create_dir(dir.join("later")).unwrap();
    // The kernel does not report a socket created at once: its directory is not watched yet.
    let _later = UnixListener::bind(dir.join("later/b.sock")).unwrap();
    world.until(attached(3)).await;
}

#[tokio::test]
async fn without_a_list_at_the_pods_start_a_socket_is_refused_and_a_directory_has_none() {
    let (world, _listener) = world().await;
    let dir = world.dir.path().canonicalize().unwrap();
    world.script.state().protocol = Some(proto_agent::version::HOST_SOCKETS - 1);
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let refused = world.pods.create_container(&pod_id, mounting("app", &[&dir.join("a.sock")])).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), PodErrorKind::FailedPrecondition);
    assert!(refused.to_string().contains("a.sock: the pod was started before"), "{refused}");
    world.pods.create_container(&pod_id, mounting("app", &[&dir])).await.unwrap();
    assert_eq!(tokens(&world), []);
}

#[test]
fn tokens_outlive_the_daemon() {
    let (left, (dir, token, _listener)) = life(None, async |world| {
        let dir = world.dir.path().canonicalize().unwrap();
        let listener = UnixListener::bind(dir.join("a.sock")).unwrap();
        let rules = world.node.start.now();
        let mut rules = (*rules).clone();
        rules.handlers[0].host_sockets = vec![dir.join("a.sock")];
        world.node.start.set(rules);
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, mounting("app", &[&dir.join("a.sock")])).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        (dir, tokens(world)[0], listener)
    });
    // The list no longer has the entry, but a container keeps its sockets for life.
    life(Some(left), async |world| {
        assert_eq!(dial(world, &token.0).await, "connected");
        assert_eq!(world.script.state().connections[0].2, dir.join("a.sock"));
    });
}
