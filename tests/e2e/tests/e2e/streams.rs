//! Exec, attach and port-forward, as a kubelet's clients see them.

use std::collections::HashMap;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proto_cri::v1;
use runtime_streaming::client::{self, Event};
use tests_e2e::{Host, spec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use crate::session::{Session, attach, exec_url};

/// Connections over one port-forward at once.
const CONNECTIONS: usize = 10;

/// A line of shell, finding commands not ended yet.
const LEFT: &str = "ps | grep 'sleep 43[2]1' || true";

#[tokio::test]
async fn commands_have_their_streams_and_their_code_comes_last() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("exec", host.dir())).await.unwrap();
    let id = client.run(&pod, spec::shell("main", &image, "sleep 100000")).await.unwrap();

    // Both outputs whole, and the code after them, though the command ends at once.
    let line = "head -c 1000000 /dev/zero; echo oops >&2; exit 3";
    let url = exec_url(&mut client, &id, &["sh", "-c", line], false, false).await;
    let mut session = Session::open(&url, &["stdout", "stderr"]).await;
    let status = session.end().await;
    assert_eq!((session.said["stdout"].len(), session.text("stderr").as_str()), (1_000_000, "oops\n"));
    assert_eq!(status["reason"], "NonZeroExitCode", "{status}");
    assert_eq!(status["details"]["causes"][0]["message"], "3");

    // A half-close is the command's end of file, after all bytes.
    let url = exec_url(&mut client, &id, &["cat"], true, false).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
    let sent: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    session.say("stdin", sent.clone(), true).await;
    assert_eq!(session.end().await["status"], "Success");
    assert!(session.said["stdout"] == sent);

    // A terminal gets its size before the later typed input.
    let url = exec_url(&mut client, &id, &["sh"], true, true).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "resize"]).await;
    for (size, seen) in
        [("{\"Width\":100,\"Height\":30}", "30 100"), ("{\"Width\":77,\"Height\":22}", "22 77")]
    {
        session.say("resize", size, false).await;
        session.say("stdin", "stty size\n", false).await;
        session.until(seen).await;
    }
    // The session ends with the command, though stdin is open.
    session.say("stdin", "echo $TERM; exit 7\n", false).await;
    assert_eq!(session.end().await["details"]["causes"][0]["message"], "7");
    assert!(session.text("stdout").contains("xterm"));

    // A command failing to start is reported as a failure, and a disconnected client leaves nothing behind.
    let url = exec_url(&mut client, &id, &["no-such-command"], false, false).await;
    let status = Session::open(&url, &["stdout", "stderr"]).await.end().await;
    assert_eq!(status["reason"], "InternalError", "{status}");
    let url = exec_url(&mut client, &id, &["sh", "-c", "echo on; sleep 4321; true"], false, false).await;
    let mut session = Session::open(&url, &["stdout", "stderr"]).await;
    session.until("on").await;
    drop(session);
    client.prints(&id, LEFT, "").await.unwrap();

    // All this over WebSocket.
    let url = exec_url(&mut client, &id, &["cat"], true, false).await;
    let messages = websocket_cat(&url).await;
    assert_eq!(
        messages[1..],
        [b"\x01hello".to_vec(), b"\x03{\"metadata\":{},\"status\":\"Success\"}".to_vec()]
    );

    // A timeout ends a command with all its child processes.
    let error = client.exec(&id, &["sh", "-c", "sleep 4321 & sleep 4321; true"], 1).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(client.sh(&id, LEFT).await.unwrap(), "");

    for request in [
        v1::ExecRequest { tty: true, stdout: true, stderr: true, ..Default::default() },
        v1::ExecRequest { tty: true, ..Default::default() },
    ] {
        let request = v1::ExecRequest { container_id: id.clone(), cmd: vec!["true".into()], ..request };
        let error = client.runtime.exec(request).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
    }
    client.stop(&id, 0).await.unwrap();
    let request =
        v1::ExecRequest { container_id: id, cmd: vec!["true".into()], stdout: true, ..Default::default() };
    let error = client.runtime.exec(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition, "{error}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_commands_terminal_belongs_to_its_user_from_the_first_step_of_its_program() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("owner", host.dir())).await.unwrap();
    let sleeper = spec::container("main", &image, &["sleep", "100000"]);
    let id = client.run(&pod, spec::with_user(sleeper, 1000, 1000)).await.unwrap();
    let line = ["sh", "-c", "echo x > /dev/stderr && stat -L -c %u /dev/stdin"];
    for _ in 0..10 {
        let url = exec_url(&mut client, &id, &line, true, true).await;
        let mut session = Session::open(&url, &["stdin", "stdout", "resize"]).await;
        assert_eq!(session.end().await["status"], "Success");
        assert_eq!(session.text("stdout"), "x\r\n1000\r\n");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// Types `hello` and ends the input.
async fn websocket_cat(url: &str) -> Vec<Vec<u8>> {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
    for message in [&b"\0hello"[..], &[255, 0]] {
        socket.send(Message::binary(message.to_vec())).await.unwrap();
    }
    let mut messages = Vec::new();
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Close(_) => return messages,
            message => messages.push(message.into_data().to_vec()),
        }
    }
}

#[tokio::test]
async fn clients_attach_and_leave_and_a_containers_input_ends_once() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("attach", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let mut shell = spec::container("shell", &image, &["sh"]);
    shell.stdin = true;
    let id = client.run(&pod, shell.clone()).await.unwrap();

    // A detaching client does not affect the container, and neither does the end of its input: the container
    // gets no end of input. The session of the client ends all the same.
    let mut first = attach(&mut client, &id, true).await;
    first.say("stdin", "echo one\n", false).await;
    first.until("one\n").await;
    first.say("stdin", "", true).await;
    assert_eq!(first.end().await["status"], "Success");
    let mut watcher = attach(&mut client, &id, false).await;
    let mut second = attach(&mut client, &id, true).await;
    second.say("stdin", "while :; do echo tick; sleep 1; done &\n", false).await;
    watcher.until("tick\n").await;
    second.until("tick\n").await;
    second.say("stdin", "kill $!; echo two; exit 5\n", false).await;
    assert_eq!(second.end().await["status"], "Success");
    watcher.end().await;
    // From now on, without earlier output.
    for seen in [second.text("stdout"), watcher.text("stdout")] {
        assert!(seen.starts_with("tick\n") && seen.ends_with("two\n"), "{seen}");
    }
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 5);
    let log = std::fs::read_to_string(format!("{}/shell.log", config.log_directory)).unwrap();
    let lines: Vec<_> = log.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!((lines.first(), lines.last()), (Some(&"one"), Some(&"two")));

    let mut once = spec::container("once", &image, &["sh"]);
    (once.stdin, once.stdin_once) = (true, true);
    let id = client.run(&pod, once).await.unwrap();
    let mut session = attach(&mut client, &id, true).await;
    session.say("stdin", "echo -n hello\n", false).await;
    session.until("hello").await;
    session.say("stdin", "", true).await;
    assert_eq!(session.end().await["status"], "Success");
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 0);
    let request = v1::AttachRequest { container_id: id, stdout: true, ..Default::default() };
    let error = client.runtime.attach(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition, "{error}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn ports_are_forwarded_many_at_once_and_a_refused_one_is_reported() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("forward", host.dir())).await.unwrap();
    let line = "mkdir /www; echo forwarded > /www/file; exec httpd -f -p 127.0.0.1:8080 -h /www";
    let id = client.run(&pod, spec::shell("web", &image, line)).await.unwrap();
    let listening = "until wget -q -O /dev/null http://127.0.0.1:8080/file; do :; done";
    client.sh(&id, listening).await.unwrap();

    let request = v1::PortForwardRequest { pod_sandbox_id: pod.clone(), port: vec![] };
    let url = client.runtime.port_forward(request).await.unwrap().into_inner().url;
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let mut open = HashMap::new();
    for number in 0..CONNECTIONS {
        let (port, request) = (if number == 3 { "8081" } else { "8080" }, number.to_string());
        let headers = |kind| [("streamtype", kind), ("port", port), ("requestid", request.as_str())];
        let error = sender.open(&headers("error")).await.unwrap();
        sender.send(error, "".into(), true).await.unwrap();
        let data = sender.open(&headers("data")).await.unwrap();
        sender.send(data, "GET /file HTTP/1.0\r\n\r\n".into(), true).await.unwrap();
        open.insert(error, (number, "error"));
        open.insert(data, (number, "data"));
    }
    let (mut said, mut ends) = (HashMap::<_, Vec<u8>>::new(), 0);
    while ends < 2 * CONNECTIONS {
        match receiver.next().await.unwrap().unwrap() {
            Event::Data { id, bytes, fin } => {
                said.entry(open[&id]).or_default().extend_from_slice(&bytes);
                ends += usize::from(fin);
            }
            Event::Reset { .. } => ends += 1,
            _ => {}
        }
    }
    for number in 0..CONNECTIONS {
        let text =
            |kind| String::from_utf8_lossy(said.get(&(number, kind)).map_or(&[], Vec::as_slice)).into_owned();
        if number == 3 {
            let (error, data) = (text("error"), text("data"));
            assert!(error.contains("8081") && error.contains("refused") && data.is_empty(), "{error}");
        } else {
            assert!(text("data").ends_with("\r\n\r\nforwarded\n"), "{:?}", text("data"));
            assert_eq!(text("error"), "");
        }
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// The status line of the answer to a request for a session.
async fn answer(url: &str, headers: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{headers}\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn hostile_clients_get_nothing_and_leave_nothing() {
    const UPGRADE: &str =
        "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("bad", host.dir())).await.unwrap();
    let id = client.run(&pod, spec::shell("main", &image, "sleep 100000")).await.unwrap();

    // A wrong token, a used one, and another kind's.
    let url = exec_url(&mut client, &id, &["true"], false, false).await;
    let wrong = format!("{}{}", &url[..url.len() - 1], if url.ends_with('0') { '1' } else { '0' });
    assert!(answer(&wrong, UPGRADE).await.contains(" 404 "));
    let other = url.replace("/exec/", "/attach/");
    assert!(answer(&other, UPGRADE).await.contains(" 404 "));
    let url = exec_url(&mut client, &id, &["true"], false, false).await;
    assert_eq!(Session::open(&url, &["stdout", "stderr"]).await.end().await["status"], "Success");
    assert!(answer(&url, UPGRADE).await.contains(" 404 "));
    // No upgrade, and an unknown protocol; neither starts the command.
    let line = ["touch", "/started"];
    let url = exec_url(&mut client, &id, &line, false, false).await;
    assert!(answer(&url, "").await.contains(" 400 "));
    let url = exec_url(&mut client, &id, &line, false, false).await;
    assert!(answer(&url, &UPGRADE.replace("v4", "v9")).await.contains(" 403 "));

    // A client types to a command without reads, and disconnects.
    let url = exec_url(&mut client, &id, &["sleep", "4321"], true, false).await;
    let stuck = tokio::task::spawn_blocking(move || {
        // A separate runtime: its end closes the connection with unsent data.
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let session = Session::open(&url, &["stdin", "stdout", "stderr"]).await;
            let typing = async {
                loop {
                    session.say("stdin", vec![b'x'; 32 << 10], false).await;
                }
            };
            let _: Result<(), _> = tokio::time::timeout(Duration::from_secs(5), typing).await;
        });
    });
    stuck.await.unwrap();
    client.prints(&id, LEFT, "").await.unwrap();

    // A killed daemon's commands end with it: no client could reconnect to them.
    let url = exec_url(&mut client, &id, &["sh", "-c", "echo on; sleep 4321; true"], true, true).await;
    let mut session = Session::open(&url, &["stdin", "stdout", "resize"]).await;
    session.until("on").await;
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    client.prints(&id, LEFT, "").await.unwrap();
    assert_eq!(client.sh(&id, "ls /started 2>/dev/null || true").await.unwrap(), "");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
