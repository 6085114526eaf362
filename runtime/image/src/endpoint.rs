//! Sends requests to one host of a registry. Owns the meaning of the host's errors and the time limit for an
//! answer. `client.rs` has the connection, and `registry.rs` chooses the hosts and their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use oci_client::Reference;
use oci_client::errors::{OciDistributionError, OciErrorCode};

use crate::access::Auth;
use crate::answer::ClientError;
use crate::client::Client;
use crate::error::{ContentError, ImageError};
use crate::hosts::Host;
use crate::limits::Limits;
use crate::manifest::ACCEPTED;

/// Most time for a token or a manifest, from request to whole answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// A blob's bytes from some offset on.
pub(crate) struct BlobStream {
    /// Offset of the first byte: the one asked for, or 0 if the host cannot resume.
    pub(crate) offset: u64,
    pub(crate) stream: BoxStream<'static, std::io::Result<Bytes>>,
}

/// One host, with one caller's credentials, for one image.
pub(crate) struct Endpoint {
    host: Host,
    name: String,
    client: Client,
    reference: Reference,
    manifest_limit: u64,
    /// True if the host did not answer the last request. Pulls then try it after all others.
    down: AtomicBool,
}

impl Endpoint {
    /// Creates the client of one host. `reference` is the image's own; `auth` is for this host.
    pub(crate) fn new(
        host: Host,
        reference: &Reference,
        auth: Auth,
        plain: bool,
        limits: &Limits,
    ) -> Result<Endpoint, ImageError> {
        let name = host.name(reference.registry());
        let reference = addressed(reference, &host);
        let plain = host.plain.unwrap_or(plain);
        let client = Client::new(&host, &reference, auth, plain, limits.silence).map_err(|source| {
            let what = "a connection".to_owned();
            ImageError::Registry { registry: name.clone(), what, source: Arc::new(source) }
        })?;
        let (manifest_limit, down) = (limits.manifest_bytes, AtomicBool::new(false));
        Ok(Endpoint { host, name, client, reference, manifest_limit, down })
    }

    /// Returns true if the host serves content by digest (`by_digest`), or resolves tags otherwise.
    pub(crate) fn serves(&self, by_digest: bool) -> bool {
        if by_digest { self.host.pulls } else { self.host.resolves }
    }

    /// Records whether the host has answered.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// Returns true if the host did not answer the last request.
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// The host's name in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gets a token if the host requires one. Without this step, a refusal would look like an error of the
    /// manifest.
    async fn login(&self) -> Result<(), ImageError> {
        let what = format!("access to {}", self.reference.repository());
        match tokio::time::timeout(ANSWER_LIMIT, self.client.log_in()).await {
            Ok(result) => result.map_err(|error| self.explain(&what, error)),
            Err(_) => Err(deadline(&what)),
        }
    }

    /// Gets the manifest of the name itself, or of another digest in its repository.
    pub(crate) async fn manifest(&self, digest: Option<&str>) -> Result<Bytes, ImageError> {
        let reference = match digest {
            Some(digest) => self.reference.clone_with_digest(digest.to_owned()),
            None => self.reference.clone(),
        };
        let what = format!("manifest {reference}");
        self.login().await?;
        let pull = self.client.manifest(&reference, &ACCEPTED, self.manifest_limit);
        match tokio::time::timeout(ANSWER_LIMIT, pull).await {
            Ok(result) => result.map_err(|error| self.explain(&what, error)),
            Err(_) => Err(deadline(&what)),
        }
    }

    /// Asks for the digest of the name's manifest, without the manifest. `None` if the host does not say it.
    pub(crate) async fn manifest_digest(&self) -> Result<Option<String>, ImageError> {
        let what = format!("manifest {}", self.reference);
        self.login().await?;
        let digest = self.client.manifest_digest(&self.reference, &ACCEPTED);
        match tokio::time::timeout(ANSWER_LIMIT, digest).await {
            Ok(result) => result.map_err(|error| self.explain(&what, error)),
            Err(_) => Err(deadline(&what)),
        }
    }

    /// Gets a blob from `offset` on. Extra addresses in the descriptor are not used.
    pub(crate) async fn blob(&self, digest: &str, what: &str, offset: u64) -> Result<BlobStream, ImageError> {
        self.login().await?;
        match self.blob_from(digest, what, offset).await {
            // A host serving only whole blobs may refuse a range.
            Err(ImageError::Registry { .. }) if offset > 0 => self.blob_from(digest, what, 0).await,
            other => other,
        }
    }

    async fn blob_from(&self, digest: &str, what: &str, offset: u64) -> Result<BlobStream, ImageError> {
        match tokio::time::timeout(ANSWER_LIMIT, self.client.blob(digest, offset)).await {
            Ok(Ok((offset, stream))) => Ok(BlobStream { offset, stream }),
            Ok(Err(error)) => Err(self.explain(what, error)),
            Err(_) => Err(deadline(what)),
        }
    }

    /// Classifies the client's errors by how a caller can react: no answer, not found, not allowed, others.
    fn explain(&self, what: &str, error: ClientError) -> ImageError {
        use OciDistributionError as E;
        use OciErrorCode as Code;
        let (registry, what) = (self.name.clone(), what.to_owned());
        let error = match error {
            ClientError::Failed(error) => error,
            ClientError::NoAccess(said) => return ImageError::Unauthorized { registry, what, said },
            ClientError::Denied(said) => return ImageError::Denied { registry, what, said },
            ClientError::Missing => return ImageError::NotFound { registry, what },
            ClientError::Busy { source, wait } => {
                return ImageError::Busy { registry, what, wait, source: Arc::new(source) };
            }
            ClientError::TooLong { size, limit } => {
                return ImageError::content(what, ContentError::Limit { size, unit: "bytes", limit });
            }
        };
        let has = |codes: &[Code]| match &error {
            E::RegistryError { envelope, .. } => {
                envelope.errors.iter().any(|error| codes.contains(&error.code))
            }
            _ => false,
        };
        let missing = [Code::ManifestUnknown, Code::NameUnknown, Code::NotFound, Code::BlobUnknown];
        match &error {
            _ if has(&[Code::Unauthorized]) => {
                ImageError::Unauthorized { registry, what, said: String::new() }
            }
            _ if has(&[Code::Denied]) => ImageError::Denied { registry, what, said: String::new() },
            _ if has(&missing) => ImageError::NotFound { registry, what },
            E::RequestError(_) | E::IoError(_) | E::ServerError { code: 502..=504, .. } => {
                ImageError::Unreachable { registry, what, source: Arc::new(error) }
            }
            _ => ImageError::Registry { registry, what, source: Arc::new(error) },
        }
    }
}

fn deadline(what: &str) -> ImageError {
    ImageError::Deadline { what: format!("getting {what}"), seconds: ANSWER_LIMIT.as_secs() }
}

/// The reference with this host's address and prefix. For a mirror, the request names the original registry
/// (`?ns=`), like containerd's.
fn addressed(reference: &Reference, host: &Host) -> Reference {
    let repository = format!("{}{}", host.prefix, reference.repository());
    let registry = reference.registry().to_owned();
    let mut addressed = match (reference.digest(), reference.tag()) {
        (Some(digest), _) => Reference::with_digest(registry, repository, digest.to_owned()),
        (None, tag) => Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned()),
    };
    if let Some(address) = &host.address {
        addressed.set_mirror_registry(address.clone());
    }
    addressed
}
