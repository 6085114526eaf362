//! Hostile clients: each gets an error or is dropped, and others are served all the same.

use std::sync::Arc;

use runtime_streaming::client::{self, Event};
use runtime_streaming::{Outcome, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sessions::{ALL, Client, Echo, Ports, TERMINAL, host, server};

/// Returns a session's connection after its handshake.
pub(crate) async fn upgraded(server: &Server) -> TcpStream {
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    // The header is "upgrade" alone: with a "close" in it Go's client sees no upgrade.
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    connection
}

/// Waits until the server ends the connection.
pub(crate) async fn is_dropped(mut connection: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = connection.read_to_end(&mut rest).await;
}

/// Returns the server's final status for a session ended before its command starts.
async fn final_status(mut client: Client) -> serde_json::Value {
    let mut said = Vec::new();
    while let Ok(Some(event)) = client.receiver.next().await {
        if let Event::Data { bytes, .. } = event {
            said.extend_from_slice(&bytes);
        }
    }
    serde_json::from_slice(&said).unwrap()
}

async fn serves(server: &Server) {
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    let client = Client::open(&url, &["error", "stdin", "stdout", "stderr"]).await;
    client.say("stdin", "still here", true).await;
    assert_eq!(client.collect().await.0["stdout"], b"still here");
}

#[tokio::test]
async fn broken_frames_end_their_own_connection_only() {
    let server = server().await;
    let frames: [&[u8]; 6] = [
        // Version 2, a control frame of 16 MiB, an even stream, an invalid zlib block, and noise.
        &[0x80, 2, 0, 1, 0, 0, 0, 0],
        &[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
        &[0x80, 3, 0, 1, 0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
        &[0x80, 3, 0, 1, 0, 0, 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
        &[0x80, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0],
        &[0; 64],
    ];
    for frame in frames {
        let mut connection = upgraded(&server).await;
        connection.write_all(frame).await.unwrap();
        is_dropped(connection).await;
    }
    serves(&server).await;
}

#[tokio::test]
async fn a_frame_that_is_cut_short_ends_the_session() {
    let server = server().await;
    let mut connection = upgraded(&server).await;
    connection.write_all(&[0x80, 3, 0, 1, 0, 0, 0x10]).await.unwrap();
    connection.shutdown().await.unwrap();
    is_dropped(connection).await;
}

#[tokio::test]
async fn an_unknown_or_doubled_stream_ends_the_session_with_a_status() {
    let server = server().await;
    for names in [&["error", "nonsense"][..], &["error", "error"], &["error", "resize"]] {
        let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
        let client = Client::open(&url, names).await;
        let status = final_status(client).await;
        assert!(status["message"].as_str().unwrap().contains(names[1]), "{status}");
    }
    serves(&server).await;
}

#[tokio::test]
async fn a_session_whose_streams_are_not_all_opened_ends_with_their_names() {
    let server = server().await;
    let url = server.exec(TERMINAL, Box::new(Echo(Outcome::Done))).unwrap();
    let mut client = Client::open(&url, &["error", "stdout"]).await;
    for _ in 0..2 {
        assert!(matches!(client.receiver.next().await.unwrap(), Some(Event::Replied(_))));
    }
    // From here on only the server's time passes.
    tokio::time::pause();
    let status = final_status(client).await;
    tokio::time::resume();
    assert_eq!(status["status"], "Failure");
    assert!(status["message"].as_str().unwrap().ends_with(": stdin, resize"), "{status}");
    serves(&server).await;
}

#[tokio::test]
async fn a_websocket_frame_of_a_gibibyte_is_refused_before_it_is_read() {
    let server = server().await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    // Final, binary, masked, 64-bit length: 1 GiB.
    connection.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]).await.unwrap();
    is_dropped(connection).await;
    serves(&server).await;
}

/// A client connected before the hostile one. It must be served afterwards.
struct Bystander(Client);

impl Bystander {
    async fn of(server: &Server) -> Bystander {
        let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
        Bystander(Client::open(&url, &["error", "stdin", "stdout", "stderr"]).await)
    }

    async fn goes_on(self) {
        self.0.say("stdin", "as ever", true).await;
        assert_eq!(self.0.collect().await.0["stdout"], b"as ever");
    }
}

#[tokio::test]
async fn half_open_connections_make_room_for_honest_clients() {
    const SILENT: usize = 3000;
    /// Silent connections kept by the server, and room.
    const KEPT_MAX: usize = 300;
    // Both ends of each are this process's.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let server = server().await;
    let bystander = Bystander::of(&server).await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    let mut silent = Vec::new();
    for number in 0..SILENT {
        let mut connection = TcpStream::connect(host(&url)).await.unwrap();
        // Some send the start of a request. They must not be kept either.
        if number % 2 == 0 {
            connection.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        }
        silent.push(connection);
        if number % 500 == 0 {
            serves(&server).await;
        }
    }
    serves(&server).await;
    bystander.goes_on().await;
    // All but the newest were closed for it.
    for connection in silent.into_iter().take(SILENT - KEPT_MAX) {
        is_dropped(connection).await;
    }
}

#[tokio::test]
async fn a_request_without_an_end_is_dropped() {
    let server = server().await;
    let bystander = Bystander::of(&server).await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    let long = format!("X-Long: {}\r\n", "x".repeat(8 << 10));
    let endless = format!("X-Endless: {}", "x".repeat(4 << 20));
    let many: String = (0..200_000).map(|number| format!("X-{number}: x\r\n")).collect();
    for head in [long.repeat(4), endless, many] {
        let mut connection = TcpStream::connect(host(&url)).await.unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        // The server may have hung up already.
        let _ = connection.write_all(head.as_bytes()).await;
        is_dropped(connection).await;
    }
    serves(&server).await;
    bystander.goes_on().await;
}

#[tokio::test]
async fn headers_that_would_be_long_end_their_own_session_only() {
    let server = server().await;
    let bystander = Bystander::of(&server).await;
    // A short block with a long content, and an overlong one.
    for length in [1 << 20, 15 << 20] {
        let value = "x".repeat(length);
        let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
        let mut command = Client::open(&url, &["error"]).await;
        command.sender.open(&[("streamtype", &value)]).await.unwrap();
        while let Ok(Some(_)) = command.receiver.next().await {}
        let url = server.forward(Arc::new(Ports)).unwrap();
        let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
        sender.open(&[("streamtype", "data"), ("port", &value)]).await.unwrap();
        while let Ok(Some(_)) = receiver.next().await {}
    }
    serves(&server).await;
    bystander.goes_on().await;
}

#[tokio::test]
async fn a_websocket_port_forward_in_another_protocol_is_refused_with_what_is_spoken() {
    let server = server().await;
    for protocol in ["v5.channel.k8s.io", "base64.channel.k8s.io"] {
        let url = server.forward(Arc::new(Ports)).unwrap();
        let path = url.split_once("://").unwrap().1.split_once('/').unwrap().1;
        let mut connection = TcpStream::connect(host(&url)).await.unwrap();
        let request = format!(
            "GET /{path}?ports=80 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("SPDY/3.1+portforward.k8s.io") && answer.contains(protocol), "{answer}");
    }
}
