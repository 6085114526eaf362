//! The registry of a name: its hosts, asked in order. Owns that order and whose credentials go where; `hosts.rs`
//! reads which hosts there are, `endpoint.rs` asks one of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::access::Auth;
use crate::client::is_loopback;
use crate::endpoint::{BlobStream, Endpoint};
use crate::error::{ContentError, ImageError, chain};
use crate::hosts;
use crate::limits::Limits;
use crate::name::Name;
use crate::pinned::Pinned;

/// How often a question is asked again that no host has answered.
const RETRIES: usize = 3;

/// The longest wait that a host may ask for. The kubelet waits, too, before it asks for the next pull.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The operator's settings for registries.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// `host` or `host:port` of registries that are used over plain HTTP. Loopback addresses always are.
    pub insecure: Vec<String>,
    /// A directory per registry with its mirrors, in the form of containerd's `hosts.toml`. Read at each pull.
    pub config_dir: Option<PathBuf>,
    /// Images that are reported as pinned.
    pub pinned: Pinned,
    /// Bounds on images.
    pub limits: Limits,
}

/// The credentials of a caller for one registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credentials {
    /// A user with a password.
    Password {
        /// The user's name.
        username: String,
        /// The password.
        password: String,
    },
    /// A token that the registry takes as it is.
    RegistryToken(String),
    /// A token that proves who somebody is, for which the registry's service gives others (OAuth2's refresh token).
    IdentityToken(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::Password { username, .. } => {
                f.debug_struct("Password").field("username", username).finish_non_exhaustive()
            }
            Credentials::RegistryToken(_) => f.write_str("RegistryToken"),
            Credentials::IdentityToken(_) => f.write_str("IdentityToken"),
        }
    }
}

impl RegistryConfig {
    fn is_plain(&self, registry: &str) -> bool {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        is_loopback(registry) || self.insecure.iter().any(|name| name == registry || name == host)
    }
}

/// The registry of one name, with one caller's credentials.
pub(crate) struct Registry {
    /// The hosts in the order in which they are asked; never empty.
    endpoints: Vec<Endpoint>,
    limits: Limits,
}

/// The number of a host, in the order in which hosts are asked.
pub(crate) type HostNumber = usize;

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
        Ok(Registry { endpoints, limits: config.limits.clone() })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The waits before a question is asked again.
    pub(crate) fn waits(&self) -> ExponentialBackoff {
        let waits =
            ExponentialBuilder::default().with_min_delay(self.limits.retry_wait).with_max_times(RETRIES);
        waits.with_jitter().build()
    }

    /// Gets the manifest of the name itself, or of another digest in its repository, and its digest.
    pub(crate) async fn manifest(
        &self,
        name: &Name,
        digest: Option<&str>,
    ) -> Result<(Bytes, String), ImageError> {
        let expected = digest.or(name.reference.digest());
        let what = format!("manifest {}", digest.map_or_else(|| name.whole(), str::to_owned));
        let shown = what.as_str();
        let question = |endpoint, _| async move {
            let bytes = Endpoint::manifest(endpoint, digest).await?;
            let actual = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
            match expected {
                Some(expected) if expected != actual => {
                    let wrong = ContentError::Digest { expected: expected.to_owned(), actual };
                    Err(ImageError::content(shown, wrong))
                }
                _ => Ok((bytes, actual)),
            }
        };
        self.ask(&what, expected.is_some(), &HashSet::new(), question).await
    }

    /// Gets a blob from `offset` on, or from 0 on if the host cannot resume, and which host that is. Hosts that are
    /// `wrong` are not asked.
    pub(crate) async fn blob(
        &self,
        digest: &str,
        what: &str,
        offset: u64,
        wrong: &HashSet<HostNumber>,
    ) -> Result<(BlobStream, HostNumber), ImageError> {
        let question = |endpoint, number| async move {
            Endpoint::blob(endpoint, digest, what, offset).await.map(|blob| (blob, number))
        };
        self.ask(what, true, wrong, question).await
    }

    /// Whether a host that is not `wrong` serves blobs.
    pub(crate) fn has_other(&self, wrong: &HashSet<HostNumber>) -> bool {
        self.serving(true, wrong).next().is_some()
    }

    fn serving<'a>(
        &'a self,
        by_digest: bool,
        wrong: &HashSet<HostNumber>,
    ) -> impl Iterator<Item = (HostNumber, &'a Endpoint)> {
        let numbered = self.endpoints.iter().enumerate();
        numbered.filter(move |(number, endpoint)| endpoint.serves(by_digest) && !wrong.contains(number))
    }

    /// Asks the hosts until one answers, and waits and asks again where the upstream's failure may pass.
    async fn ask<'a, T, Answer: Future<Output = Result<T, ImageError>>>(
        &'a self,
        what: &str,
        by_digest: bool,
        wrong: &HashSet<HostNumber>,
        question: impl Fn(&'a Endpoint, HostNumber) -> Answer,
    ) -> Result<T, ImageError> {
        let mut waits = self.waits();
        loop {
            let mut failures = match self.ask_each(what, by_digest, wrong, &question).await {
                Ok(answer) => return Ok(answer),
                Err(failures) => failures,
            };
            let wait = match failures.last() {
                Some(last) if last.is_passing() => waits.next().map(|wait| wait.max(asked_for(&failures))),
                _ => None,
            };
            match wait {
                Some(wait) if wait <= RETRY_AFTER_MAX => tokio::time::sleep(wait).await,
                _ if failures.len() == 1 => return Err(failures.remove(0)),
                _ => return Err(ImageError::Hosts { what: what.to_owned(), failures }),
            }
        }
    }

    /// Asks one host after the other until one answers; those that did not answer before come last. The failures are in
    /// the hosts' own order.
    async fn ask_each<'a, T, Answer: Future<Output = Result<T, ImageError>>>(
        &'a self,
        what: &str,
        by_digest: bool,
        wrong: &HashSet<HostNumber>,
        question: impl Fn(&'a Endpoint, HostNumber) -> Answer,
    ) -> Result<T, Vec<ImageError>> {
        let mut failures = Vec::new();
        let mut hosts: Vec<_> = self.serving(by_digest, wrong).collect();
        hosts.sort_by_key(|(_, endpoint)| endpoint.is_down());
        for (number, endpoint) in hosts {
            let answer = question(endpoint, number).await;
            let is_down = |error: &ImageError| {
                matches!(error, ImageError::Unreachable { .. } | ImageError::Deadline { .. })
            };
            endpoint.set_down(answer.as_ref().is_err_and(is_down));
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    debug!(host = endpoint.name(), error = chain(&error), "a host does not serve {what}");
                    failures.push((number, error));
                }
            }
        }
        failures.sort_by_key(|(number, _)| *number);
        Err(failures.into_iter().map(|(_, error)| error).collect())
    }
}

/// The longest wait that a host has asked for.
fn asked_for(failures: &[ImageError]) -> Duration {
    let wait = |error: &ImageError| match error {
        ImageError::Busy { wait, .. } => *wait,
        _ => None,
    };
    failures.iter().filter_map(wait).max().unwrap_or_default()
}

fn auth(credentials: Option<&Credentials>) -> Auth {
    match credentials.cloned() {
        None => Auth::Anonymous,
        Some(Credentials::Password { username, password }) => Auth::Password(username, password),
        Some(Credentials::RegistryToken(token)) => Auth::Token(token),
        Some(Credentials::IdentityToken(token)) => Auth::Identity(token),
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
    fn a_secret_is_never_shown() {
        let secret = || "hunter2".to_owned();
        for credentials in [
            Credentials::Password { username: "me".into(), password: secret() },
            Credentials::RegistryToken(secret()),
            Credentials::IdentityToken(secret()),
        ] {
            let shown = format!("{credentials:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
