//! The process itself: its identity as seen by the node's server, and a seccomp filter sufficient for a
//! connection. Needs root.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use runtime_connector::{Connector, ConnectorSpec, ConnectorUser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The process started by the other test: this program again, running only this test.
#[test]
#[ignore = "no test, but the process of one"]
fn connector() {
    let user = std::env::var("CONNECTOR_USER").unwrap();
    assert_eq!(runtime_connector::run(&user), std::process::ExitCode::SUCCESS);
}

#[tokio::test]
async fn a_server_sees_the_user_and_gets_every_byte() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("passed over: it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open =
        |path: &std::path::Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(dir.path(), 0o755);
    let program = dir.path().join("program");
    let this = std::env::current_exe().unwrap();
    let line = format!(
        "#!/bin/sh\nCONNECTOR_USER=$2 exec {} --ignored --exact --nocapture connector\n",
        this.display()
    );
    fs::write(&program, line).unwrap();
    open(&program, 0o755);
    let socket = dir.path().canonicalize().unwrap().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    open(&socket, 0o666);
    let user = ConnectorUser { uid: 1234, gid: 65_534, groups: vec![27] };
    let spec = ConnectorSpec { program: &program, cgroups: &[], user: &user };
    let connector = Connector::start(spec).await.unwrap();
    let (mut container, end) = UnixStream::pair().unwrap();
    let end = OwnedFd::from(end.into_std().unwrap());
    connector.connect(&socket, end).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let peer = server.peer_cred().unwrap();
    assert_eq!((peer.uid(), peer.gid()), (1234, 65_534));
    let status = fs::read_to_string(format!("/proc/{}/status", peer.pid().unwrap())).unwrap();
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    let question = vec![b'q'; 1 << 20];
    let asking = async {
        container.write_all(&question).await.unwrap();
        container.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let ((), length) = tokio::join!(asking, async { server.read_to_end(&mut heard).await.unwrap() });
    assert_eq!(length, question.len());
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    container.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}
