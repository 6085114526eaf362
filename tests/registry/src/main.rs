//! `tests-registry serve`: a registry with the demo's image, until killed.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::Parser;
use tests_registry::{Registry, busybox_image};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "A registry on loopback with images for tests and the demo")]
enum Command {
    /// Starts a registry, pushes demo/busybox, prints its reference, and stays until killed.
    Serve {
        /// Port on 127.0.0.1.
        #[arg(long, default_value_t = 5000)]
        port: u16,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let Command::Serve { port } = Command::parse();
    let registry = Registry::start_on(port)?;
    let (layers, config) = busybox_image()?;
    registry.push_image("demo/busybox", "latest", layers, config).await?;
    println!("{}", registry.reference("demo/busybox", "latest"));
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
