//! Bytes of a hostile guest: its message that it is ready, and its answers to an RPC and to the opening of a stream.
//! The daemon's client must come back with an error or an answer, whatever comes.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use runtime_guest::agent::StreamKind;
use runtime_guest::{Guest, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

/// Accepts as the VMM does, and sends `bytes`, then nothing more.
async fn send(listener: &UnixListener, bytes: &[u8]) {
    let Ok((mut stream, _)) = listener.accept().await else { return };
    let mut line = [0; 64];
    let _ = stream.read(&mut line).await;
    let _ = stream.write_all(b"OK 1\n").await;
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    // What the client still sends is read away, so that it is not the one to fail.
    let mut rest = [0; 1024];
    while matches!(stream.read(&mut rest).await, Ok(n) if n > 0) {}
}

async fn receive(bytes: &[u8]) {
    let (here, mut there) = UnixStream::pair().expect("a pair");
    let _ = there.write_all(bytes).await;
    drop(there);
    let _ = ready(here).await;

    let path = std::env::temp_dir().join(format!("podvisor-fuzz-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let client = async {
        if let Ok(guest) = Guest::connect(&path).await {
            let _ = guest.wait("c", "").await;
        }
    };
    tokio::join!(send(&listener, bytes), client);
    let client = async {
        let Ok(guest) = Guest::connect(&path).await else { return };
        let _ = guest.output("c", StreamKind::STREAM_KIND_STDOUT, 0).await;
    };
    let twice = async {
        // The connection for RPCs stays silent; the stream's sends the bytes.
        let Ok((rpc, _)) = listener.accept().await else { return };
        let (mut rpc, mut line) = (rpc, [0; 64]);
        let _ = rpc.read(&mut line).await;
        let _ = rpc.write_all(b"OK 1\n").await;
        send(&listener, bytes).await;
    };
    tokio::join!(twice, client);
}

fuzz_target!(|bytes: &[u8]| {
    // Longer ones only fill the socket's buffer.
    if bytes.len() <= 4096 {
        runtime().block_on(receive(bytes));
    }
});
