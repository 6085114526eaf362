//! A registry and how it is asked. Owns the choice of protocol, credentials and the meaning of its errors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use oci_client::Reference;
use oci_client::RegistryOperation;
use oci_client::client::{BlobResponse, Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;

use crate::error::{ImageError, Wrong};
use crate::manifest::ACCEPTED;
use crate::name::Name;

/// To open a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// Between two pieces of one answer.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// For a token or a manifest, from question to whole answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// Bounds on what one image may bring. None is likely to be met by an honest image.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a manifest or index (registries refuse more than 4 MiB, too).
    pub manifest_bytes: u64,
    /// Bytes of a config; it is held in memory.
    pub config_bytes: u64,
    /// Compressed bytes of one layer.
    pub layer_bytes: u64,
    /// Uncompressed bytes of all layers of an image together: what a decompression bomb can cost.
    pub unpacked_bytes: u64,
    /// Layers of one image.
    pub layers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            manifest_bytes: 4 << 20,
            config_bytes: 8 << 20,
            layer_bytes: 32 << 30,
            unpacked_bytes: 64 << 30,
            layers: 256,
        }
    }
}

/// How registries are spoken to.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// `host` or `host:port` of registries spoken to over plain HTTP. Loopback addresses always are.
    pub insecure: Vec<String>,
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
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    host: String,
    manifest_limit: u64,
}

/// The rest of a blob.
pub(crate) struct BlobStream {
    /// Where the registry starts: what was asked for, or 0 if it cannot resume.
    pub(crate) offset: u64,
    pub(crate) stream: BoxStream<'static, std::io::Result<Bytes>>,
}

impl Registry {
    pub(crate) fn new(
        name: &Name,
        credentials: Option<&Credentials>,
        config: &RegistryConfig,
    ) -> Result<Registry, ImageError> {
        let host = name.reference.registry().to_owned();
        let client = Client::try_from(ClientConfig {
            protocol: if config.is_plain(&host) { ClientProtocol::Http } else { ClientProtocol::Https },
            connect_timeout: Some(CONNECT_LIMIT),
            read_timeout: Some(SILENCE_LIMIT),
            user_agent: concat!("podvisor/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        })
        .map_err(|source| ImageError::Registry {
            registry: host.clone(),
            what: "a connection".to_owned(),
            source: Arc::new(source),
        })?;
        let auth = match credentials {
            None => RegistryAuth::Anonymous,
            Some(Credentials { username, password }) if username.is_empty() => {
                RegistryAuth::Bearer(password.clone())
            }
            Some(Credentials { username, password }) => {
                RegistryAuth::Basic(username.clone(), password.clone())
            }
        };
        let manifest_limit = config.limits.manifest_bytes;
        Ok(Registry { client, reference: name.reference.clone(), auth, host, manifest_limit })
    }

    /// Gets a token if the registry wants one. Without this step a refusal would show as that of the manifest.
    pub(crate) async fn login(&self) -> Result<(), ImageError> {
        let what = format!("access to {}", self.reference.repository());
        let login = self.client.auth(&self.reference, &self.auth, RegistryOperation::Pull);
        match tokio::time::timeout(ANSWER_LIMIT, login).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.explain(&what, error)),
            Err(_) => Err(deadline(&what)),
        }
    }

    /// The manifest of the name itself, or of another digest in its repository.
    pub(crate) async fn manifest(&self, digest: Option<&str>) -> Result<Bytes, ImageError> {
        let reference = match digest {
            Some(digest) => self.reference.clone_with_digest(digest.to_owned()),
            None => self.reference.clone(),
        };
        let what = format!("manifest {reference}");
        let pull = self.client.pull_manifest_raw(&reference, &self.auth, &ACCEPTED);
        let (bytes, _) = match tokio::time::timeout(ANSWER_LIMIT, pull).await {
            Ok(result) => result.map_err(|error| self.explain(&what, error))?,
            Err(_) => return Err(deadline(&what)),
        };
        let (size, limit) = (bytes.len() as u64, self.manifest_limit);
        if size > limit {
            return Err(ImageError::content(what, Wrong::Limit { size, unit: "bytes", limit }));
        }
        Ok(bytes)
    }

    /// A blob from `offset` on. Addresses that the descriptor offers besides the registry are not used.
    pub(crate) async fn blob(&self, digest: &str, what: &str, offset: u64) -> Result<BlobStream, ImageError> {
        let pull = self.client.pull_blob_stream_partial(&self.reference, digest, offset, None);
        match tokio::time::timeout(ANSWER_LIMIT, pull).await {
            Ok(Ok(BlobResponse::Full(stream))) => Ok(BlobStream { offset: 0, stream: stream.stream }),
            Ok(Ok(BlobResponse::Partial(stream))) => Ok(BlobStream { offset, stream: stream.stream }),
            Ok(Err(error)) => Err(self.explain(what, error)),
            Err(_) => Err(deadline(what)),
        }
    }

    /// Tells apart what a caller can act upon: no answer, not there, not allowed, and the rest.
    fn explain(&self, what: &str, error: OciDistributionError) -> ImageError {
        use OciDistributionError as E;
        use OciErrorCode as Code;
        let (registry, what) = (self.host.clone(), what.to_owned());
        let has = |codes: &[Code]| match &error {
            E::RegistryError { envelope, .. } => {
                envelope.errors.iter().any(|error| codes.contains(&error.code))
            }
            _ => false,
        };
        let missing = [Code::ManifestUnknown, Code::NameUnknown, Code::NotFound, Code::BlobUnknown];
        match &error {
            E::UnauthorizedError { .. }
            | E::AuthenticationFailure(_)
            | E::ServerError { code: 401 | 403, .. } => ImageError::Unauthorized { registry, what },
            E::ServerError { code: 404, .. } => ImageError::NotFound { registry, what },
            _ if has(&[Code::Unauthorized, Code::Denied]) => ImageError::Unauthorized { registry, what },
            _ if has(&missing) => ImageError::NotFound { registry, what },
            E::RequestError(_) | E::IoError(_) | E::ServerError { code: 502..=504, .. } => {
                ImageError::Unreachable { registry, what, source: Arc::new(error) }
            }
            E::DigestError(oci_client::errors::DigestError::VerificationError { expected, actual }) => {
                let (expected, actual) = (expected.clone(), actual.clone());
                ImageError::content(what, Wrong::Digest { expected, actual })
            }
            _ => ImageError::Registry { registry, what, source: Arc::new(error) },
        }
    }
}

fn deadline(what: &str) -> ImageError {
    ImageError::Deadline { what: format!("getting {what}"), seconds: ANSWER_LIMIT.as_secs() }
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
