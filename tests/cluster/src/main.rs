//! `tests-csi`: a storage plugin of the node (CSI). Its volumes are directories below one directory. Runs as
//! a privileged pod of the node, mounts a volume by a bind into the kubelet's directory, and relies on the
//! mount's propagation out of its container.
//!
//! `volumes.rs` mounts, `services.rs` answers the kubelet, `authority.rs` makes its requests fit for the
//! server. Never released.
#![forbid(unsafe_code)]

mod authority;
mod services;
mod volumes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;

use crate::services::proto::identity_server::IdentityServer;
use crate::services::proto::node_server::NodeServer;
use crate::services::registration::registration_server::RegistrationServer;
use crate::services::{DRIVER, Plugin, Registrar};
use crate::volumes::Volumes;

#[derive(Parser)]
#[command(about = "A storage plugin of the node whose volumes are directories")]
struct Options {
    /// The kubelet's root directory, at the same path as on the node.
    #[arg(long)]
    kubelet: PathBuf,
    /// The directory of the volumes.
    #[arg(long)]
    data: PathBuf,
    /// Name of the node.
    #[arg(long)]
    node: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let socket = options.kubelet.join("plugins").join(DRIVER).join("csi.sock");
    let registration = options.kubelet.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
    let plugin = Plugin { node: options.node, volumes: Volumes::new(options.data) };
    let serving = Server::builder()
        .add_service(IdentityServer::new(plugin.clone()))
        .add_service(NodeServer::new(plugin))
        .serve_with_incoming(listen(&socket)?);
    // The kubelet calls back as soon as it sees this socket, so the other one is made first.
    let registrar = Registrar { endpoint: socket.display().to_string() };
    let introducing = Server::builder()
        .add_service(RegistrationServer::new(registrar))
        .serve_with_incoming(listen(&registration)?);
    println!("serves {} at {}", DRIVER, socket.display());
    tokio::try_join!(serving, introducing)?;
    Ok(())
}

/// Listens, replacing an earlier process's socket.
fn listen(path: &Path) -> Result<impl Stream<Item = std::io::Result<DuplexStream>>> {
    let directory = path.parent().context("a socket has a directory")?;
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
    Ok(UnixListenerStream::new(listener).map(|client| client.map(authority::relayed)))
}
