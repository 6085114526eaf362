//! Exec and attach, over both transports.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use runtime_streaming::client::{self, DialError, Event};
use runtime_streaming::{Outcome, Streams};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use crate::hostile::upgraded;
use crate::sessions::{ALL, Client, Count, Echo, Flood, TERMINAL, host, server};

#[tokio::test]
async fn all_streams_reach_the_client_and_the_status_comes_last() {
    let server = server().await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Exited(0)))).unwrap();
    let client = Client::open(&url, &["error", "stdin", "stdout", "stderr"]).await;
    client.say("stdin", "hello ", false).await;
    client.say("stdin", "world", true).await;
    let (said, ended) = client.collect().await;
    assert_eq!((said["stdout"].as_slice(), said["stderr"].as_slice()), (&b"hello world"[..], &b"done"[..]));
    assert_eq!(said["error"], br#"{"metadata":{},"status":"Success"}"#);
    assert_eq!(ended.last(), Some(&"error"));
    assert_eq!(ended.len(), 3);
}

#[tokio::test]
async fn sizes_and_keys_keep_their_order() {
    let server = server().await;
    let url = server.attach(TERMINAL, Box::new(Echo(Outcome::Done))).unwrap();
    let client = Client::open(&url, &["error", "stdin", "stdout", "resize"]).await;
    client.say("resize", "{\"Width\":80,\"Height\":24}\n", false).await;
    client.say("stdin", "a", false).await;
    client.say("resize", "{\"Width\":100,\"Height\":30}\n", false).await;
    client.say("stdin", "b", true).await;
    assert_eq!(client.collect().await.0["stdout"], b"[80x24]a[100x30]b");
}

#[tokio::test]
async fn a_command_that_ends_ends_the_session_though_stdin_is_open() {
    let server = server().await;
    let streams = Streams { stdin: true, stdout: true, ..Streams::default() };
    let url = server.exec(streams, Box::new(Flood(1 << 20))).unwrap();
    let (said, _) = Client::open(&url, &["error", "stdin", "stdout"]).await.collect().await;
    assert_eq!(said["stdout"].len(), 1 << 20);
    let status = String::from_utf8(said["error"].clone()).unwrap();
    assert!(status.contains(r#""reason":"ExitCode""#) && status.contains(r#""message":"3""#), "{status}");
}

#[tokio::test]
async fn output_that_the_kernel_moves_comes_whole_and_in_order() {
    const NUMBERS: u32 = 1_000_000;
    let server = server().await;
    let streams = Streams { stdout: true, ..Streams::default() };
    let url = server.exec(streams, Box::new(Count(NUMBERS))).unwrap();
    let (said, _) = Client::open(&url, &["error", "stdout"]).await.collect().await;
    let status = String::from_utf8(said["error"].clone()).unwrap();
    assert!(status.contains("Success"), "{status}");
    assert!(said["stdout"] == (0..NUMBERS).flat_map(u32::to_be_bytes).collect::<Vec<u8>>());
}

/// The clock may be paused only when the connections are made: paused, it would leap over their deadlines.
#[tokio::test]
async fn a_client_that_reads_slowly_is_not_disconnected_for_minutes() {
    const MINUTE: Duration = Duration::from_secs(60);
    let server = server().await;
    let streams = Streams { stdout: true, ..Streams::default() };
    let url = server.exec(streams, Box::new(Flood(1 << 20))).unwrap();
    let mut client = Client::open(&url, &["error", "stdout"]).await;
    let outcome = client.ids["error"];
    loop {
        match client.receiver.next().await.unwrap().unwrap() {
            Event::Data { id, fin: true, .. } if id == outcome => break,
            _ => {}
        }
    }
    tokio::time::pause();
    tokio::time::timeout(5 * MINUTE, client.receiver.next()).await.unwrap_err();
    assert_eq!(tokio::time::timeout(10 * MINUTE, client.receiver.next()).await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen_by_the_command() {
    let server = server().await;
    let (gone, seen) = tokio::sync::oneshot::channel();
    let url = server.exec(ALL, Box::new(Watch(gone))).unwrap();
    let client = Client::open(&url, &["error", "stdin", "stdout", "stderr"]).await;
    client.say("stdin", "x", false).await;
    drop(client);
    seen.await.unwrap();
}

/// A command reporting its client's end.
pub(crate) struct Watch(pub(crate) tokio::sync::oneshot::Sender<()>);

#[async_trait::async_trait]
impl runtime_streaming::Command for Watch {
    async fn run(self: Box<Self>, mut channels: runtime_streaming::Channels) -> Outcome {
        while channels.input.recv().await.is_some() {}
        self.0.send(()).unwrap();
        Outcome::Done
    }
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen_though_its_input_is_not_taken() {
    const PIECES: usize = 256;
    let server = server().await;
    for websockets in [false, true] {
        let (gone, seen) = tokio::sync::oneshot::channel();
        let url = server.exec(ALL, Box::new(TakesNothing(gone))).unwrap();
        let piece = vec![b'x'; 32 << 10];
        let sending = async move {
            if websockets {
                let mut socket = websocket(&url, "v5.channel.k8s.io").await;
                let message = Message::binary([&[0], &piece[..]].concat());
                for _ in 0..PIECES {
                    stuck(socket.send(message.clone())).await?.unwrap();
                }
            } else {
                let client = Client::open(&url, &["error", "stdin", "stdout", "stderr"]).await;
                for _ in 0..PIECES {
                    let sending = client.sender.send(client.ids["stdin"], piece.clone().into(), false);
                    stuck(sending).await?.unwrap();
                }
            }
            Ok::<(), Elapsed>(())
        };
        // A separate runtime. Its end closes the client's connection with unsent bytes.
        let client = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(sending).unwrap_err();
        });
        client.await.unwrap();
        seen.await.unwrap();
    }
}

/// Returns an error if sending is stuck. The caller must leave the server's output unread, so that the
/// client's close is a reset. An orderly end would wait behind the bytes not taken by the server.
pub(crate) async fn stuck<F: Future>(sending: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout(Duration::from_millis(500), sending).await
}

/// A command without input. It reports its client's end.
pub(crate) struct TakesNothing(pub(crate) tokio::sync::oneshot::Sender<()>);

#[async_trait::async_trait]
impl runtime_streaming::Command for TakesNothing {
    async fn run(self: Box<Self>, channels: runtime_streaming::Channels) -> Outcome {
        while !channels.input.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.0.send(()).unwrap();
        Outcome::Done
    }
}

#[tokio::test]
async fn a_ping_is_answered() {
    // A control frame of version 3 and type 6, without flags, with a number of four bytes.
    const PING: [u8; 12] = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7];
    let mut connection = upgraded(&*server().await).await;
    connection.write_all(&PING).await.unwrap();
    let mut answer = [0; PING.len()];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, PING);
}

#[tokio::test]
async fn a_url_is_valid_once_and_for_its_own_purpose() {
    let server = server().await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Done))).unwrap();
    client::dial(&url, client::COMMAND, None).await.unwrap();
    for bad in [url.clone(), url[..url.len() - 1].to_owned(), url.replace("/exec/", "/attach/")] {
        let error = client::dial(&bad, client::COMMAND, None).await.unwrap_err();
        assert!(matches!(error, DialError::Refused(status) if status == 404), "{bad}: {error}");
    }
}

pub(crate) async fn websocket(url: &str, protocol: &str) -> WebSocketStream<TcpStream> {
    let connection = TcpStream::connect(host(url)).await.unwrap();
    websocket_over(connection, url, protocol).await
}

pub(crate) async fn websocket_over<S>(mut connection: S, url: &str, protocol: &str) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (host, path) = url.split_once("://").unwrap().1.split_once('/').unwrap();
    let named = match protocol {
        "" => String::new(),
        protocol => format!("Sec-WebSocket-Protocol: {protocol}\r\n"),
    };
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{named}\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    WebSocketStream::from_raw_socket(connection, Role::Client, None).await
}

pub(crate) async fn until_closed<S>(mut socket: WebSocketStream<S>) -> Vec<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = Vec::new();
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Close(frame) => {
                assert_eq!(u16::from(frame.unwrap().code), 1000);
                return messages;
            }
            message => messages.push(message.into_data().to_vec()),
        }
    }
}

#[tokio::test]
async fn websocket_v5_ends_stdin_and_gets_the_status() {
    let server = server().await;
    let url = server.exec(ALL, Box::new(Echo(Outcome::Exited(0)))).unwrap();
    let mut socket = websocket(&url, "v5.channel.k8s.io").await;
    for message in [&b"\0hello"[..], &[255, 0]] {
        socket.send(Message::binary(message.to_vec())).await.unwrap();
    }
    let messages = until_closed(socket).await;
    assert_eq!(messages[0], [1]);
    assert_eq!(messages[1], b"\x01hello");
    assert_eq!(messages[2], b"\x02done");
    assert_eq!(messages[3], b"\x03{\"metadata\":{},\"status\":\"Success\"}");
}

#[tokio::test]
async fn websocket_base64_carries_digits_and_text() {
    let server = server().await;
    let streams = Streams { stdin: true, stdout: true, ..Streams::default() };
    let url = server.exec(streams, Box::new(Flood(3))).unwrap();
    let messages = until_closed(websocket(&url, "base64.channel.k8s.io").await).await;
    assert_eq!(messages[..2], [b"1".to_vec(), b"1eHh4".to_vec()]);
    assert!(messages[2].starts_with(b"3"));
}

/// Ends once it has this many bytes of input and the two sizes, and fails at any other end.
struct Measure(usize);

#[async_trait::async_trait]
impl runtime_streaming::Command for Measure {
    async fn run(self: Box<Self>, mut channels: runtime_streaming::Channels) -> Outcome {
        let (mut bytes, mut sizes) = (0, 0);
        while bytes < self.0 || sizes < 2 {
            match channels.input.recv().await {
                Some(runtime_streaming::Input::Bytes(piece)) => bytes += piece.len(),
                Some(runtime_streaming::Input::Resize(_)) => sizes += 1,
                _ => return Outcome::failed("the input has ended early"),
            }
        }
        Outcome::Exited(0)
    }
}

#[tokio::test]
async fn long_messages_are_taken_and_messages_that_cannot_be_read_are_passed_over() {
    const BYTES: usize = 32 * 1024 * 1024 - 1;
    let server = server().await;
    let size = &b"\x04{\"Width\":80,\"Height\":24}"[..];
    let long = [&[0], &vec![b'x'; BYTES][..]].concat();
    let url = server.exec(TERMINAL, Box::new(Measure(BYTES))).unwrap();
    let mut socket = websocket(&url, "v5.channel.k8s.io").await;
    for message in [size, b"", b"\x09other", b"\x04nonsense", b"\x00", &long, size] {
        socket.send(Message::binary(Bytes::copy_from_slice(message))).await.unwrap();
    }
    let messages = until_closed(socket).await;
    assert_eq!(messages.last().unwrap(), b"\x03{\"metadata\":{},\"status\":\"Success\"}");

    let url = server.exec(TERMINAL, Box::new(Measure(2))).unwrap();
    let mut socket = websocket(&url, "v4.base64.channel.k8s.io").await;
    let size = "4eyJXaWR0aCI6ODAsIkhlaWdodCI6MjR9";
    for message in [size, "", "0!!", "xaGk=", "0aGk=", size] {
        socket.send(Message::text(message)).await.unwrap();
    }
    let messages = until_closed(socket).await;
    assert!(messages.last().unwrap().starts_with(b"3"));
    let status = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, &messages.last().unwrap()[1..]);
    assert_eq!(status.unwrap(), br#"{"metadata":{},"status":"Success"}"#);
}

#[tokio::test]
async fn a_websocket_without_a_protocol_carries_bytes_and_gets_a_text() {
    let server = server().await;
    let streams = Streams { stdin: true, stdout: true, ..Streams::default() };
    let url = server.exec(streams, Box::new(Flood(3))).unwrap();
    let messages = until_closed(websocket(&url, "").await).await;
    assert_eq!(messages[..2], [b"\x01".to_vec(), b"\x01xxx".to_vec()]);
    assert!(messages[2].starts_with(b"\x03") && !messages[2].starts_with(b"\x03{"), "{messages:?}");
}
