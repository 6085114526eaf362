//! A CNI network for one host: a bridge and its own address range.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context;
use tokio::process::Command;

/// The plugins' directory in Debian's package.
pub const PLUGINS: &str = "/usr/lib/cni";

/// A network's files and names.
#[derive(Debug)]
pub struct Network {
    /// CNI configuration directory.
    pub conf_dir: PathBuf,
    /// CNI result cache.
    pub cache_dir: PathBuf,
    /// The bridge on the host.
    pub bridge: String,
}

impl Network {
    /// Writes a configuration under `dir`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(dir: &Path) -> std::io::Result<Network> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network {
            conf_dir: dir.join("cni"),
            cache_dir: dir.join("cni-cache"),
            // Interface names are at most 15 bytes (IFNAMSIZ); the process id keeps test binaries apart.
            bridge: format!("pv{}-{number}", std::process::id() % 100_000),
        };
        std::fs::create_dir_all(&network.conf_dir)?;
        network.configure(&network.plugins(number, &dir.join("leases")))?;
        Ok(network)
    }

    /// Replaces the configuration by this one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&self, conflist: &serde_json::Value) -> std::io::Result<()> {
        std::fs::write(self.conf_dir.join("10-test.conflist"), conflist.to_string())
    }

    fn plugins(&self, number: u8, leases: &Path) -> serde_json::Value {
        let process = std::process::id() % 200;
        serde_json::json!({
            "cniVersion": "1.0.0",
            "name": self.bridge,
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge,
                    "isGateway": true,
                    "ipMasq": false,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": leases,
                        "ranges": [
                            [{ "subnet": format!("10.{process}.{number}.0/24") }],
                            [{ "subnet": format!("fd00:{process:x}:{number:x}::/64") }]
                        ],
                        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]
                    }
                },
                { "type": "portmap", "capabilities": { "portMappings": true } }
            ]
        })
    }

    /// Removes the bridge. CNI leaves it for the next pod.
    ///
    /// # Errors
    /// When `ip` cannot be run.
    pub async fn remove(&self) -> anyhow::Result<()> {
        let command = ["link", "delete", &self.bridge];
        // No pod ever ran: no bridge, and nothing to remove.
        Command::new("ip").args(command).output().await.context("running ip")?;
        Ok(())
    }
}

impl Drop for Network {
    /// Removes the bridge if the test failed or forgot it: another test of the node may get the same range of
    /// addresses.
    fn drop(&mut self) {
        if Path::new("/sys/class/net").join(&self.bridge).exists() {
            let _ = std::process::Command::new("ip").args(["link", "delete", &self.bridge]).output();
        }
    }
}
