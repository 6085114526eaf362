//! The registry of a name: its hosts, asked in order. Owns that order and whose credentials go where; `hosts.rs`
//! reads which hosts there are, `endpoint.rs` asks one of them.

use std::path::PathBuf;

use bytes::Bytes;
use oci_client::secrets::RegistryAuth;
use tracing::debug;

use crate::endpoint::{BlobStream, Endpoint};
use crate::error::{ImageError, chain};
use crate::hosts;
use crate::limits::Limits;
use crate::name::Name;

/// The operator's settings for registries.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// `host` or `host:port` of registries that are used over plain HTTP. Loopback addresses always are.
    pub insecure: Vec<String>,
    /// A directory per registry with its mirrors, in the form of containerd's `hosts.toml`. Read at each pull.
    pub config_dir: Option<PathBuf>,
    /// Bounds on images.
    pub limits: Limits,
}

/// A name and password, or token, for one registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// Empty for a bearer token in `password`.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl RegistryConfig {
    fn is_plain(&self, registry: &str) -> bool {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        loopback || self.insecure.iter().any(|name| name == registry || name == host)
    }
}

/// The registry of one name, with one caller's credentials.
pub(crate) struct Registry {
    /// The hosts in the order in which they are asked; never empty.
    endpoints: Vec<Endpoint>,
}

impl Registry {
    /// Reads which hosts serve the registry. Blocks on the disk.
    pub(crate) fn open(
        name: &Name,
        credentials: Option<&Credentials>,
        config: &RegistryConfig,
    ) -> Result<Registry, ImageError> {
        let registry = name.reference.registry();
        let plain = config.is_plain(registry);
        let mut endpoints = Vec::new();
        for host in hosts::read(config.config_dir.as_deref(), registry)? {
            // A registry's credentials are not for its mirrors to see.
            let auth = auth(credentials.filter(|_| host.upstream));
            endpoints.push(Endpoint::new(host, &name.reference, auth, plain, &config.limits)?);
        }
        Ok(Registry { endpoints })
    }

    /// Gets the manifest of the name itself, or of another digest in its repository.
    pub(crate) async fn manifest(&self, name: &Name, digest: Option<&str>) -> Result<Bytes, ImageError> {
        let by_digest = digest.is_some() || name.reference.digest().is_some();
        let what = format!("manifest {}", digest.map_or_else(|| name.whole(), str::to_owned));
        self.ask(&what, by_digest, |endpoint| endpoint.manifest(digest)).await
    }

    /// Gets a blob from `offset` on, or from 0 on if the host cannot resume.
    pub(crate) async fn blob(&self, digest: &str, what: &str, offset: u64) -> Result<BlobStream, ImageError> {
        self.ask(what, true, |endpoint| endpoint.blob(digest, what, offset)).await
    }

    /// Asks one host after the other until one answers. With a single host the error is that host's.
    async fn ask<'a, T, Answer: Future<Output = Result<T, ImageError>>>(
        &'a self,
        what: &str,
        by_digest: bool,
        question: impl Fn(&'a Endpoint) -> Answer,
    ) -> Result<T, ImageError> {
        let mut failures = Vec::new();
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.serves(by_digest)) {
            match question(endpoint).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    debug!(host = endpoint.name(), error = chain(&error), "a host does not serve {what}");
                    if matches!(error, ImageError::Unreachable { .. } | ImageError::Deadline { .. }) {
                        endpoint.mark_down();
                    }
                    failures.push(error);
                }
            }
        }
        match failures.len() {
            1 => Err(failures.remove(0)),
            _ => Err(ImageError::Hosts { what: what.to_owned(), failures }),
        }
    }
}

fn auth(credentials: Option<&Credentials>) -> RegistryAuth {
    match credentials {
        None => RegistryAuth::Anonymous,
        Some(Credentials { username, password }) if username.is_empty() => {
            RegistryAuth::Bearer(password.clone())
        }
        Some(Credentials { username, password }) => RegistryAuth::Basic(username.clone(), password.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_named_registries_are_plain_and_others_are_not() {
        let config =
            RegistryConfig { insecure: vec!["lab:5000".into(), "old".into()], ..RegistryConfig::default() };
        for plain in ["localhost", "localhost:5000", "127.0.0.1:1", "127.9.9.9", "lab:5000", "old", "old:81"]
        {
            assert!(config.is_plain(plain), "{plain}");
        }
        for secure in ["docker.io", "lab", "lab:5001", "localhost.example.com", "10.0.0.1:5000"] {
            assert!(!config.is_plain(secure), "{secure}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let shown = format!("{:?}", Credentials { username: "me".into(), password: "hunter2".into() });
        assert!(shown.contains("me") && !shown.contains("hunter2"), "{shown}");
    }
}
