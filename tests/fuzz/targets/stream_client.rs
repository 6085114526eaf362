//! Bytes of a streaming client through whole sessions: a command over SPDY and over WebSocket, a port-forward bare and
//! tunnelled. Each must end, with all that was started for it, when its client has closed.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use runtime_streaming::fuzz;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    // Time-outs take no time, and a wait that nothing ends comes to one.
    let make = || Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    RUNTIME.get_or_init(make)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, input)) = bytes.split_first() else { return };
    runtime().block_on(async {
        match kind % 4 {
            0 => fuzz::command_over_spdy(input).await,
            1 => fuzz::command_over_websocket(input).await,
            2 => fuzz::forward(input).await,
            _ => fuzz::tunnelled_forward(input).await,
        }
    });
});
