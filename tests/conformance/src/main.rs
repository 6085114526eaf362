//! `tests-conformance`: a registry on loopback with stand-ins for the images of the CRI conformance suite,
//! under their own repositories, until killed. `images.rs` defines them; `../files` makes the programs in
//! them.
#![forbid(unsafe_code)]

mod images;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use tests_registry::Registry;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "A registry on loopback with stand-ins for the images of the CRI conformance suite")]
struct Options {
    /// The directory made by `tests/conformance/files`.
    #[arg(long)]
    files: PathBuf,
    /// Port on 127.0.0.1.
    #[arg(long, default_value_t = 5000)]
    port: u16,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let registry = Registry::start_on(options.port)?;
    let images = images::all(&options.files)?;
    for image in &images {
        registry.push_image(image.repository, image.tag, image.layers.clone(), image.config.clone()).await?;
    }
    println!("{} images at {}", images.len(), registry.addr);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
