//! Debian's `docker-registry` in a temporary directory, on a loopback port. Owns its process and pushing to
//! it.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::digest::digest_of;
use crate::layer::Layer;

const BINARY: &str = "/usr/bin/docker-registry";

/// Longest wait until the registry listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// User of a registry made by [`Registry::start_with_password`].
pub const USERNAME: &str = "tester";
/// The user's password.
pub const PASSWORD: &str = "secret";
/// The password, as `htpasswd -B` writes it.
const PASSWORD_HASH: &str = "$2b$04$PDiG8RxvY9a831NECHxpo.SjcP.72jvYRbwivYz5d28PNPsBw9S02";

/// A running registry. Dropping it stops the process and removes the storage.
#[derive(Debug)]
pub struct Registry {
    /// `127.0.0.1:port`.
    pub addr: String,
    child: Child,
    storage: TempDir,
    auth: RegistryAuth,
}

impl Registry {
    /// Returns true if `docker-registry` is installed. Otherwise tests with a need for it print this and
    /// pass.
    pub fn is_installed() -> bool {
        let installed = Path::new(BINARY).exists();
        if !installed {
            eprintln!("skipped: {BINARY} (package docker-registry) is not installed");
        }
        installed
    }

    /// Starts a registry without authentication, on a free port.
    pub fn start() -> Result<Registry> {
        Self::launch(None, &RegistryAuth::Anonymous)
    }

    /// Starts a registry on this port.
    pub fn start_on(port: u16) -> Result<Registry> {
        Self::launch(Some(port), &RegistryAuth::Anonymous)
    }

    /// Starts a registry with authentication by [`USERNAME`] and [`PASSWORD`].
    pub fn start_with_password() -> Result<Registry> {
        Self::launch(None, &RegistryAuth::Basic(USERNAME.to_owned(), PASSWORD.to_owned()))
    }

    fn launch(port: Option<u16>, auth: &RegistryAuth) -> Result<Registry> {
        // A free port may be taken by another process before the registry binds it.
        for _ in 0..5 {
            let wanted = match port {
                Some(port) => port,
                None => TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            };
            let storage = tempfile::tempdir()?;
            let addr = format!("127.0.0.1:{wanted}");
            let config = storage.path().join("config.yml");
            std::fs::write(&config, configuration(storage.path(), &addr, auth)?)?;
            let child = Command::new(BINARY)
                .arg("serve")
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(std::fs::File::create(storage.path().join("log"))?)
                .spawn()
                .with_context(|| format!("starting {BINARY}"))?;
            let mut registry = Registry { addr, child, storage, auth: auth.clone() };
            if registry.listens()? {
                return Ok(registry);
            }
        }
        bail!("{BINARY} does not start")
    }

    /// Waits until the port is open; false if the process ends first.
    fn listens(&mut self) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            if TcpStream::connect(&self.addr).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// `127.0.0.1:port/name:tag`.
    pub fn reference(&self, name: &str, tag: &str) -> String {
        format!("{}/{name}:{tag}", self.addr)
    }

    /// `127.0.0.1:port/name@digest`.
    pub fn digest_reference(&self, name: &str, digest: &str) -> String {
        format!("{}/{name}@{digest}", self.addr)
    }

    /// Pushes an image. `config` is the section for running it (`{"Cmd": ["sh"], "Env": […]}`). Returns the
    /// manifest's digest.
    pub async fn push_image(
        &self,
        name: &str,
        tag: &str,
        layers: Vec<Layer>,
        config: Value,
    ) -> Result<String> {
        let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let document = json!({
            "architecture": "amd64", "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        self.push_with_config(name, tag, &layers, &serde_json::to_vec(&document)?).await
    }

    /// Pushes an image with any bytes as its config.
    pub async fn push_with_config(
        &self,
        name: &str,
        tag: &str,
        layers: &[Layer],
        config: &[u8],
    ) -> Result<String> {
        self.push_blob(name, config).await?;
        for layer in layers {
            self.push_blob(name, &layer.bytes).await?;
        }
        let described: Vec<Value> = layers
            .iter()
            .map(|layer| json!({ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() }))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config), "size": config.len(),
            },
            "layers": described,
        });
        self.push_manifest(name, tag, &manifest).await
    }

    /// Pushes an index of existing manifests: (architecture, digest, size).
    pub async fn push_index(&self, name: &str, tag: &str, entries: &[(&str, &str)]) -> Result<String> {
        let mut manifests = Vec::new();
        for (architecture, digest) in entries {
            let size = std::fs::metadata(self.blob_path(digest))?.len();
            manifests.push(json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size,
                "platform": { "os": "linux", "architecture": architecture },
            }));
        }
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests,
        });
        self.push_manifest(name, tag, &index).await
    }

    /// Pushes a manifest or index, according to its media type. Returns its digest.
    pub async fn push_manifest(&self, name: &str, tag: &str, manifest: &Value) -> Result<String> {
        let bytes = serde_json::to_vec(manifest)?;
        let digest = digest_of(&bytes);
        let media_type = manifest["mediaType"].as_str().context("a manifest needs its mediaType")?;
        let reference = Reference::with_tag(self.addr.clone(), name.to_owned(), tag.to_owned());
        let client = self.client(&reference).await;
        client
            .push_manifest_raw(&reference, bytes, media_type.parse()?)
            .await
            .context("pushing a manifest")?;
        Ok(digest)
    }

    /// Pushes one blob.
    pub async fn push_blob(&self, name: &str, bytes: &[u8]) -> Result<String> {
        let digest = digest_of(bytes);
        let reference = Reference::with_tag(self.addr.clone(), name.to_owned(), "latest".to_owned());
        let client = self.client(&reference).await;
        client.push_blob(&reference, bytes.to_vec(), &digest).await.context("pushing a blob")?;
        Ok(digest)
    }

    async fn client(&self, reference: &Reference) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            use_monolithic_push: true,
            ..ClientConfig::default()
        });
        client.store_auth_if_needed(reference.resolve_registry(), &self.auth).await;
        client
    }

    /// The registry's file of a blob or manifest: tests damage it.
    pub fn blob_path(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = self.storage.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(hex.get(..2).unwrap_or_default()).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Both fail only if the process is gone, and this is the aim.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(directory: &Path, addr: &str, auth: &RegistryAuth) -> Result<String> {
    let data = directory.join("data");
    let mut text = format!(
        "version: 0.1\nlog: {{level: warn, accesslog: {{disabled: true}}}}\nhttp: {{addr: \"{addr}\"}}\n\
         storage: {{filesystem: {{rootdirectory: \"{}\"}}, delete: {{enabled: true}}}}\n",
        data.display()
    );
    if let RegistryAuth::Basic(username, _) = auth {
        let passwords = directory.join("htpasswd");
        std::fs::write(&passwords, format!("{username}:{PASSWORD_HASH}\n"))?;
        text += &format!("auth: {{htpasswd: {{realm: tests, path: \"{}\"}}}}\n", passwords.display());
    }
    Ok(text)
}
