//! Sessions for tests, and clients that collect a server's output.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use runtime_pieces::{Piece, Pieces};
use runtime_streaming::client::{self, Event, Receiver, Sender};
use runtime_streaming::{Channels, Command, Forward, Input, Outcome, Server, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;

pub(crate) async fn server() -> Arc<Server> {
    Server::start("127.0.0.1:0".parse().unwrap(), None).await.unwrap()
}

/// Returns the address in a URL.
pub(crate) fn host(url: &str) -> &str {
    url.split_once("://").unwrap().1.split('/').next().unwrap()
}

/// Every stream but a terminal's.
pub(crate) const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
pub(crate) const TERMINAL: Streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };

/// Writes each input to stdout until the input ends, then "done" to stderr, and ends with the outcome given.
pub(crate) struct Echo(pub(crate) Outcome);

#[async_trait]
impl Command for Echo {
    async fn run(self: Box<Self>, channels: Channels) -> Outcome {
        let Channels { mut input, stdout, stderr } = channels;
        while let Some(event) = input.recv().await {
            let text = match event {
                Input::Bytes(bytes) => bytes,
                Input::Resize(size) => format!("[{}x{}]", size.columns, size.rows).into(),
                Input::End => break,
            };
            if let Some(stdout) = &stdout {
                stdout.send(text.into()).await.unwrap();
            }
        }
        if let Some(stderr) = &stderr {
            stderr.send(Bytes::from("done").into()).await.unwrap();
        }
        self.0
    }
}

/// Writes this many bytes and ends, with stdin still open.
pub(crate) struct Flood(pub(crate) usize);

#[async_trait]
impl Command for Flood {
    async fn run(self: Box<Self>, mut channels: Channels) -> Outcome {
        let stdout = channels.stdout.take().unwrap();
        match stdout.send(Bytes::from(vec![b'x'; self.0]).into()).await {
            Ok(()) => Outcome::Exited(3),
            Err(error) => Outcome::failed(error.to_string()),
        }
    }
}

/// Writes this many numbers to stdout, from a socket, in pieces. Some of them must come in pipes.
pub(crate) struct Count(pub(crate) u32);

#[async_trait]
impl Command for Count {
    async fn run(self: Box<Self>, mut channels: Channels) -> Outcome {
        let (mut near, far) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let said: Vec<u8> = (0..self.0).flat_map(u32::to_be_bytes).collect();
            near.write_all(&said).await.unwrap();
        });
        let (mut pieces, stdout) = (Pieces::from(far), channels.stdout.take().unwrap());
        let mut piped = false;
        while let Some(piece) = pieces.next().await.unwrap() {
            piped |= matches!(piece, Piece::Piped(_));
            stdout.send(piece).await.unwrap();
        }
        Outcome::Exited(if piped { 0 } else { 1 })
    }
}

/// Port 80 echoes until the client's half-close and adds ", goodbye". The others refuse connections.
pub(crate) struct Ports;

#[async_trait]
impl Forward for Ports {
    async fn forward(&self, port: u16, mut connection: DuplexStream) -> Result<(), String> {
        if port != 80 {
            return Err("connection refused".into());
        }
        let mut text = Vec::new();
        connection.read_to_end(&mut text).await.unwrap();
        text.extend_from_slice(b", goodbye");
        connection.write_all(&text).await.unwrap();
        Ok(())
    }
}

/// A client of a command, with its streams open.
pub(crate) struct Client {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) ids: HashMap<&'static str, u32>,
}

impl Client {
    pub(crate) async fn open(url: &str, names: &[&'static str]) -> Client {
        Client::trusting(None, url, names).await
    }

    pub(crate) async fn trusting(authority: Option<&Path>, url: &str, names: &[&'static str]) -> Client {
        let (mut sender, receiver) = client::dial(url, client::COMMAND, authority).await.unwrap();
        let mut ids = HashMap::new();
        for name in names {
            ids.insert(*name, sender.open(&[("streamtype", name)]).await.unwrap());
        }
        Client { sender, receiver, ids }
    }

    pub(crate) async fn say(&self, name: &str, text: &'static str, end: bool) {
        self.sender.send(self.ids[name], text.into(), end).await.unwrap();
    }

    /// Returns the bytes of each stream until the error stream ends, and the order of the streams' ends.
    pub(crate) async fn collect(mut self) -> (HashMap<&'static str, Vec<u8>>, Vec<&'static str>) {
        let (mut said, mut ended) = (HashMap::new(), Vec::new());
        let names: HashMap<u32, &'static str> = self.ids.iter().map(|(name, id)| (*id, *name)).collect();
        while let Some(event) = self.receiver.next().await.unwrap() {
            if let Event::Data { id, bytes, fin } = event {
                said.entry(names[&id]).or_insert_with(Vec::new).extend_from_slice(&bytes);
                if fin {
                    ended.push(names[&id]);
                }
            }
            if ended.last() == Some(&"error") {
                break;
            }
        }
        (said, ended)
    }
}
