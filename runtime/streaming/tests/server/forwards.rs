//! Port-forward.

use std::collections::HashMap;
use std::sync::Arc;

use futures::SinkExt;
use runtime_streaming::client::{self, Event, Receiver, Sender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::commands::{until_closed, websocket};
use crate::sessions::{Ports, server};

async fn connect(sender: &mut Sender, request: &str, port: &str) -> (u32, u32) {
    let headers = |kind| [("streamtype", kind), ("port", port), ("requestid", request)];
    let error = sender.open(&headers("error")).await.unwrap();
    sender.send(error, "".into(), true).await.unwrap();
    (error, sender.open(&headers("data")).await.unwrap())
}

/// Returns the bytes of each stream, and the reset streams, once `ends` streams have ended or been reset.
async fn collect(receiver: &mut Receiver, ends: usize) -> (HashMap<u32, Vec<u8>>, Vec<u32>) {
    let (mut said, mut resets, mut ended) = (HashMap::new(), Vec::new(), 0);
    while ended < ends {
        match receiver.next().await.unwrap().unwrap() {
            Event::Data { id, bytes, fin } => {
                said.entry(id).or_insert_with(Vec::new).extend_from_slice(&bytes);
                ended += usize::from(fin);
            }
            Event::Reset { id } => {
                resets.push(id);
                ended += 1;
            }
            _ => {}
        }
    }
    (said, resets)
}

#[tokio::test]
async fn connections_share_a_client_and_each_has_its_own_ends() {
    let server = server().await;
    let url = server.forward(Arc::new(Ports)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let mut pairs = Vec::new();
    for number in 0..10 {
        pairs.push(connect(&mut sender, &number.to_string(), "80").await);
    }
    for (number, (_, data)) in pairs.iter().enumerate().rev() {
        sender.send(*data, format!("hello {number}").into(), true).await.unwrap();
    }
    let (said, resets) = collect(&mut receiver, 20).await;
    for (number, (error, data)) in pairs.iter().enumerate() {
        assert_eq!(said[data], format!("hello {number}, goodbye").as_bytes());
        assert_eq!(said[error], b"");
    }
    assert!(resets.is_empty(), "{resets:?}");
}

#[tokio::test]
async fn a_refused_port_is_reported_on_the_error_stream() {
    let server = server().await;
    let url = server.forward(Arc::new(Ports)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let (error, data) = connect(&mut sender, "1", "81").await;
    let (said, resets) = collect(&mut receiver, 2).await;
    assert_eq!(said[&error], b"error forwarding port 81: connection refused");
    assert_eq!(resets, [data]);
}

#[tokio::test]
async fn a_stream_without_a_port_or_kind_is_reset_and_the_others_go_on() {
    let server = server().await;
    let url = server.forward(Arc::new(Ports)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let mut bad = Vec::new();
    for (kind, port) in [("data", "0"), ("data", "x"), ("data", "70000"), ("other", "80"), ("error", "")] {
        bad.push(sender.open(&[("streamtype", kind), ("port", port), ("requestid", "9")]).await.unwrap());
    }
    assert_eq!(collect(&mut receiver, 5).await.1, bad);
    let (_, data) = connect(&mut sender, "1", "80").await;
    sender.send(data, "hi".into(), true).await.unwrap();
    assert_eq!(collect(&mut receiver, 2).await.0[&data], b"hi, goodbye");
}

/// A pod that takes nothing, and closes the channel when the connection is given up.
struct TakesNothing(tokio::sync::mpsc::Sender<()>);

#[async_trait::async_trait]
impl runtime_streaming::Forward for TakesNothing {
    async fn forward(&self, _: u16, _connection: tokio::io::DuplexStream) -> Result<(), String> {
        let _closed_when_dropped = self.0.clone();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen_though_a_pod_takes_nothing() {
    let server = server().await;
    let (held, mut gone) = tokio::sync::mpsc::channel(1);
    let url = server.forward(Arc::new(TakesNothing(held))).unwrap();
    let client = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let sending = async {
            let (mut sender, _receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
            let (_, data) = connect(&mut sender, "1", "80").await;
            loop {
                sender.send(data, vec![b'x'; 32 << 10].into(), false).await.unwrap();
            }
        };
        let stuck = async { tokio::time::timeout(std::time::Duration::from_millis(500), sending).await };
        runtime.block_on(stuck).unwrap_err();
    });
    client.await.unwrap();
    assert_eq!(gone.recv().await, None);
}

/// A pod that sends only "hello", and then waits for the client's end.
struct Hello;

#[async_trait::async_trait]
impl runtime_streaming::Forward for Hello {
    async fn forward(&self, _: u16, mut connection: tokio::io::DuplexStream) -> Result<(), String> {
        connection.write_all(b"hello").await.unwrap();
        connection.shutdown().await.unwrap();
        connection.read_to_end(&mut Vec::new()).await.unwrap();
        Ok(())
    }
}

#[tokio::test]
async fn a_pods_end_is_sent_before_the_clients_own() {
    let server = server().await;
    let url = server.forward(Arc::new(Hello)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let (error, data) = connect(&mut sender, "1", "80").await;
    let (said, _) = collect(&mut receiver, 1).await;
    assert_eq!(said[&data], b"hello");
    sender.send(data, "".into(), true).await.unwrap();
    let (said, resets) = collect(&mut receiver, 1).await;
    assert!(said[&error].is_empty() && resets.is_empty());
}

#[tokio::test]
async fn a_client_that_answers_the_pods_end_by_a_reset_gets_the_end_of_its_error_stream() {
    let server = server().await;
    let url = server.forward(Arc::new(Hello)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let (error, data) = connect(&mut sender, "1", "80").await;
    collect(&mut receiver, 1).await;
    sender.reset(data).await.unwrap();
    let (said, resets) = collect(&mut receiver, 1).await;
    assert!(said[&error].is_empty() && resets.is_empty());
}

#[tokio::test]
async fn a_reset_ends_the_error_stream_though_a_pod_takes_nothing() {
    let server = server().await;
    let url = server.forward(Arc::new(TakesNothing(tokio::sync::mpsc::channel(1).0))).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let (error, data) = connect(&mut sender, "1", "80").await;
    sender.reset(data).await.unwrap();
    let (said, resets) = collect(&mut receiver, 1).await;
    assert!(said[&error].is_empty() && resets.is_empty());
}

#[tokio::test]
async fn a_client_that_never_answers_the_pods_end_gets_the_end_of_its_error_stream() {
    let server = server().await;
    let url = server.forward(Arc::new(Hello)).unwrap();
    let (mut sender, mut receiver) = client::dial(&url, client::FORWARD, None).await.unwrap();
    let (error, _data) = connect(&mut sender, "1", "80").await;
    collect(&mut receiver, 1).await;
    // The time given to the client after the pod's end, and the clock goes on.
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    tokio::time::resume();
    let (said, resets) = collect(&mut receiver, 1).await;
    assert!(said[&error].is_empty() && resets.is_empty());
}

/// A pod's port that echoes five bytes and closes, and a port that refuses.
struct EchoFive;

#[async_trait::async_trait]
impl runtime_streaming::Forward for EchoFive {
    async fn forward(&self, port: u16, mut connection: tokio::io::DuplexStream) -> Result<(), String> {
        if port != 80 {
            return Err("connection refused".into());
        }
        let mut five = [0; 5];
        connection.read_exact(&mut five).await.unwrap();
        connection.write_all(&five).await.unwrap();
        connection.shutdown().await.unwrap();
        // The client sends no end.
        connection.read_to_end(&mut Vec::new()).await.unwrap();
        Ok(())
    }

    fn ports(&self) -> &[u16] {
        &[80, 0x1234]
    }
}

#[tokio::test]
async fn ports_over_websocket_channels_begin_with_their_numbers() {
    let server = server().await;
    for protocol in ["v4.channel.k8s.io", ""] {
        let url = server.forward(Arc::new(EchoFive)).unwrap();
        let mut socket = websocket(&url, protocol).await;
        for message in [&b""[..], b"\x09other", b"\x01error", b"\x00he", b"\x00llo"] {
            socket.send(Message::binary(message.to_vec())).await.unwrap();
        }
        let mut said = vec![Vec::new(); 4];
        for message in until_closed(socket).await {
            said[usize::from(message[0])].extend_from_slice(&message[1..]);
        }
        assert_eq!(said[0], b"\x50\0hello");
        assert_eq!(said[1], b"\x50\0");
        assert_eq!(said[2], b"\x34\x12");
        assert_eq!(said[3], b"\x34\x12error forwarding port 4660: connection refused");
    }
}

#[tokio::test]
async fn ports_over_websocket_channels_in_base64_have_digits() {
    let server = server().await;
    let url = server.forward(Arc::new(EchoFive)).unwrap();
    let mut socket = websocket(&url, "v4.base64.channel.k8s.io").await;
    for message in ["", "0!", "0aGVsbG8="] {
        socket.send(Message::text(message)).await.unwrap();
    }
    let messages = until_closed(socket).await;
    for expected in ["0UAA=", "1UAA=", "2NBI=", "3NBI=", "0aGVsbG8="] {
        assert!(messages.contains(&expected.as_bytes().to_vec()), "{expected} in {messages:?}");
    }
}

/// A pod that takes nothing on its one port.
struct OnePort(TakesNothing);

#[async_trait::async_trait]
impl runtime_streaming::Forward for OnePort {
    async fn forward(&self, port: u16, connection: tokio::io::DuplexStream) -> Result<(), String> {
        self.0.forward(port, connection).await
    }

    fn ports(&self) -> &[u16] {
        &[80]
    }
}

#[tokio::test]
async fn the_end_of_a_websocket_gives_up_its_ports() {
    let server = server().await;
    let (held, mut gone) = tokio::sync::mpsc::channel(1);
    let url = server.forward(Arc::new(OnePort(TakesNothing(held)))).unwrap();
    let mut socket = websocket(&url, "v4.channel.k8s.io").await;
    // More than the way to the pod holds, so that no read shows the client's end.
    socket.send(Message::binary(vec![0; 1 << 20])).await.unwrap();
    drop(socket);
    assert_eq!(gone.recv().await, None);
}
