//! Runs whole sessions against a hostile client. Each session must end after its client's close, together
//! with all its tasks.
//!
//! The clock must be paused, so that timeouts pass at once and a hanging session is noticed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::program::Program;
use crate::channels::{Channels, Command, Forward, Input, Outcome, PIECE_BYTES, Streams};
use crate::disconnect::DisconnectWatch;
use crate::negotiate::{Framing, Version};
use crate::{command, forward as forwards, websocket};

/// How long a client stays after it has sent everything, or is unable to.
const STAY: Duration = Duration::from_secs(5);

/// How long a session may last without its client: longer than all its own timeouts together.
const AFTER: Duration = Duration::from_secs(20);

/// Runs an exec over SPDY.
pub async fn command_over_spdy(input: &[u8]) {
    let mut program = Program::new(input);
    let (session, choice) = (session(&mut program), program.byte());
    let version = Version { json: choice & 1 == 0, resize: choice & 2 == 0 };
    let client = Client::new(&mut program);
    let wire = program.spdy();
    let serving = async |io, disconnect| _ = command::over_spdy(io, version, session, disconnect, None).await;
    client.run_against(wire, serving).await;
}

/// Runs an exec over WebSocket.
pub async fn command_over_websocket(input: &[u8]) {
    let mut program = Program::new(input);
    let (session, choice) = (session(&mut program), program.byte());
    let framing = Framing { json: choice & 1 == 0, base64: choice & 2 == 0, close: choice & 4 == 0 };
    let client = Client::new(&mut program);
    let wire = program.websocket();
    let serving = async |io, disconnect| command::over_websocket(io, framing, session, disconnect).await;
    client.run_against(wire, serving).await;
}

/// Runs a port-forward.
pub async fn forward(input: &[u8]) {
    let mut program = Program::new(input);
    let client = Client::new(&mut program);
    let wire = program.spdy();
    let serving = async |io, disconnect| _ = forwards::serve(io, Arc::new(Ports), disconnect).await;
    client.run_against(wire, serving).await;
}

/// Runs a port-forward in WebSocket messages.
pub async fn tunnelled_forward(input: &[u8]) {
    let mut program = Program::new(input);
    let client = Client::new(&mut program);
    let wire = program.tunnelled();
    let serving = async |io, disconnect| {
        _ = forwards::serve(websocket::byte_stream(io).await, Arc::new(Ports), disconnect).await;
    };
    client.run_against(wire, serving).await;
}

/// A client's behaviour besides its bytes.
struct Client {
    /// Longest piece sent at once, in bytes.
    piece: usize,
    /// True if the client reads.
    reads: bool,
}

impl Client {
    fn new(program: &mut Program<'_>) -> Client {
        let choice = program.byte();
        Client { piece: 1 << (choice % 18), reads: choice < 200 }
    }

    /// Plays the client against the server's side of one session.
    async fn run_against<F>(self, wire: Vec<u8>, serving: F)
    where
        F: AsyncFnOnce(UnixStream, DisconnectWatch),
    {
        let before = Handle::current().metrics().num_alive_tasks();
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let disconnect = DisconnectWatch::of(&near).expect("a second descriptor");
        let serving = serving(near, disconnect);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = self.play(far, &wire) => {
                timeout(AFTER, serving).await.expect("the session ends with its client");
            }
        }
        let ended = async {
            while Handle::current().metrics().num_alive_tasks() > before {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(AFTER, ended).await.expect("the session's tasks end with it");
    }

    /// Sends everything, stays for a while, and closes.
    async fn play(self, mut connection: UnixStream, wire: &[u8]) {
        let (mut read, mut write) = connection.split();
        let sending = async {
            for piece in wire.chunks(self.piece) {
                if write.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            std::future::pending::<()>().await;
        };
        let receiving = async {
            let mut chunk = [0; 4096];
            while self.reads && matches!(read.read(&mut chunk).await, Ok(1..)) {}
            if !self.reads {
                std::future::pending::<()>().await;
            }
        };
        let _ = timeout(STAY, async {
            tokio::select! {
                () = sending => {}
                () = receiving => {}
            }
        })
        .await;
    }
}

fn session(program: &mut Program<'_>) -> command::Session {
    let choice = program.byte();
    let is = |bit: u8| choice & bit == 0;
    let streams = Streams { stdin: is(1), stdout: is(2), stderr: is(4), tty: is(8) };
    let command: Box<dyn Command> = if is(48) { Box::new(TakesNothing) } else { Box::new(Echo) };
    command::Session { streams, command }
}

/// A command copying its input to its output until the end.
struct Echo;

#[async_trait]
impl Command for Echo {
    async fn run(self: Box<Self>, channels: Channels) -> Outcome {
        let Channels { mut input, stdout, stderr: _stderr } = channels;
        while let Some(event) = input.recv().await {
            match event {
                Input::Bytes(bytes) => {
                    assert!(!bytes.is_empty() && bytes.len() <= PIECE_BYTES);
                    if let Some(stdout) = &stdout
                        && let Err(error) = stdout.send(bytes.into()).await
                    {
                        return Outcome::failed(error.to_string());
                    }
                }
                Input::Resize(size) => assert!(size.columns > 0 && size.rows > 0),
                Input::End => return Outcome::Exited(3),
            }
        }
        Outcome::Done
    }
}

/// A command without input. It ends when its client has gone.
struct TakesNothing;

#[async_trait]
impl Command for TakesNothing {
    async fn run(self: Box<Self>, channels: Channels) -> Outcome {
        while !channels.input.is_closed() {
            sleep(Duration::from_millis(100)).await;
        }
        Outcome::Done
    }
}

/// Port 80 echoes, 81 takes nothing and has no end, and the others refuse connections.
struct Ports;

#[async_trait]
impl Forward for Ports {
    async fn forward(&self, port: u16, connection: DuplexStream) -> Result<(), String> {
        match port {
            80 => {
                let (mut read, mut write) = tokio::io::split(connection);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                Ok(())
            }
            81 => std::future::pending().await,
            _ => Err("connection refused".into()),
        }
    }
}
