//! The registry of a name: its hosts, asked in order. Owns this order and the destination of credentials.
//! `hosts.rs` reads the list of hosts, and `endpoint.rs` sends requests to one of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::Bytes;
use tracing::debug;

use crate::access::Auth;
use crate::digest::Hasher;
use crate::endpoint::{BlobStream, Endpoint};
use crate::error::{ContentError, ImageError, chain};
use crate::hosts::{self, is_loopback};
use crate::limits::Limits;
use crate::name::Name;
use crate::pinned::Pinned;

/// How often a request is repeated if no host has answered.
const RETRIES: usize = 3;

/// The longest delay accepted from a host. The kubelet also waits before it requests the next pull.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The operator's settings for registries.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// `host` or `host:port` of registries used over plain HTTP. Loopback addresses are, too, unless they
    /// have certificates in `config_dir`.
    pub insecure: Vec<String>,
    /// A directory per registry with its mirrors, in the form of containerd's `hosts.toml`. Read at each
    /// pull.
    pub config_dir: Option<PathBuf>,
    /// Images reported as pinned.
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
    /// A token used directly with the registry.
    RegistryToken(String),
    /// A token for an identity. The registry's service exchanges it for other tokens (OAuth2's refresh
    /// token).
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
    /// Returns true if a registry without a scheme is used over plain HTTP.
    fn is_plain(&self, registry: &str, has_certificates: bool) -> bool {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        let is_insecure = self.insecure.iter().any(|name| name == registry || name == host);
        is_insecure || is_loopback(registry) && !has_certificates
    }
}

/// The registry of one name, with one caller's credentials.
pub(crate) struct Registry {
    /// The hosts in the order of requests; never empty.
    endpoints: Vec<Endpoint>,
    limits: Limits,
}

/// The number of a host, in the order of requests.
pub(crate) type HostNumber = usize;

impl Registry {
    /// Reads the registry's hosts. Blocks on the disk.
    pub(crate) fn open(
        name: &Name,
        credentials: Option<&Credentials>,
        config: &RegistryConfig,
    ) -> Result<Registry, ImageError> {
        let registry = name.reference.registry();
        let mut endpoints = Vec::new();
        for host in hosts::read(config.config_dir.as_deref(), registry)? {
            // A registry's credentials must not be sent to its mirrors.
            let auth = auth(credentials.filter(|_| host.upstream));
            let plain = config.is_plain(registry, host.has_certificates());
            endpoints.push(Endpoint::new(host, &name.reference, auth, plain, &config.limits)?);
        }
        Ok(Registry { endpoints, limits: config.limits.clone() })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The delays before repeating a request.
    pub(crate) fn waits(&self) -> ExponentialBackoff {
        let waits =
            ExponentialBuilder::default().with_min_delay(self.limits.retry_wait).with_max_times(RETRIES);
        waits.with_jitter().build()
    }

    /// Gets a manifest and its digest: of the name itself, or of another digest in its repository.
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
            let mut hash = Hasher::like(expected.unwrap_or_default());
            hash.update(&bytes);
            let actual = hash.finish();
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

    /// Asks each host once for the digest of the name's manifest, without the manifest. Registries count only
    /// manifests as pulls. `None` if no host says it. A request for the manifest then has the reason.
    pub(crate) async fn manifest_digest(&self, name: &Name) -> Option<String> {
        let expected = name.reference.digest();
        let what = format!("digest of {}", name.whole());
        let question = |endpoint, _| Endpoint::manifest_digest(endpoint);
        let answer = self.ask_each(&what, expected.is_some(), &HashSet::new(), question).await.ok()?;
        match (expected, answer) {
            (Some(expected), Some(digest)) => (digest == expected).then_some(digest),
            (Some(expected), None) => Some(expected.to_owned()),
            (None, answer) => answer,
        }
    }

    /// Gets a blob from `offset`, or from 0 if the host cannot resume, and the number of the host. Hosts in
    /// `wrong` are skipped.
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

    /// Returns true if a host outside `wrong` serves blobs.
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

    /// Asks the hosts until one answers. Waits and repeats if the upstream's failure is temporary.
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

    /// Asks one host after the other until one answers. Those unreachable before come last. The failures are
    /// in the hosts' own order.
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

/// The longest delay requested by a host.
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
            assert!(config.is_plain(plain, false), "{plain}");
        }
        for secure in ["docker.io", "lab", "lab:5001", "localhost.example.com", "10.0.0.1:5000"] {
            assert!(!config.is_plain(secure, false), "{secure}");
        }
        assert!(!config.is_plain("localhost:5000", true) && config.is_plain("lab:5000", true));
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
