//! The HTTP client of one host: requests, access tokens, and bodies that are bounded as they come. Owns the wire form of
//! the OCI distribution specification's pulls and of Docker's token authentication; what an error means for a caller is
//! `endpoint.rs`'s.
//!
//! ```text
//!   GET /v2/ ──► no challenge ──────────────────► no access is needed
//!            ──► Basic ─────────────────────────► name and password, where the caller has them
//!            ──► Bearer realm, service ──► GET realm ──► token, for as long as the host says
//! ```
//! A request that is refused with a challenge all the same gets the access that the challenge wants, and is sent once more:
//! a token may have ended, and some hosts ask for one only where it is needed.
//!
//! A body's length counts as it comes, whatever the host has announced, and nothing is decoded: a bound on bytes received
//! is a bound on bytes held.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use oci_client::Reference;
use oci_client::errors::{OciDistributionError, OciEnvelope};
use reqwest::header::{ACCEPT, RANGE, RETRY_AFTER};
use reqwest::{Certificate, Identity, RequestBuilder, Response, StatusCode};
use url::Url;

use crate::challenge::{Bearer, Challenge, retry_after};
use crate::hosts::Host;
use crate::token::{self, Token};

/// Most time to open a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// Most bytes of an answer with a token. A token is sent in a header, of which servers take far less.
const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// Bytes of an error's body that are read; the rest is for nobody.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The connection broke, or the host refused.
    Failed(OciDistributionError),
    /// The host takes no more requests for now.
    Busy {
        source: OciDistributionError,
        /// How long the host wants to be left alone, if it says so.
        wait: Option<Duration>,
    },
    /// The body is longer than `limit`; `size` bytes of it have come.
    TooLong { size: u64, limit: u64 },
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        ClientError::Failed(error.into())
    }
}

/// The proof of a caller's rights that a host wants.
#[derive(Clone)]
enum Access {
    None,
    Basic(String, String),
    Bearer(String),
}

impl Access {
    fn prove(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Access::None => request,
            Access::Basic(name, password) => request.basic_auth(name, Some(password)),
            Access::Bearer(token) => request.bearer_auth(token),
        }
    }
}

/// The credentials of a caller, for one host.
#[derive(Clone)]
pub(crate) enum Auth {
    Anonymous,
    Password(String, String),
    /// A token that the registry takes as it is.
    Token(String),
    /// A token for which the registry's service gives one for each repository.
    Identity(String),
}

/// An access, and when it ends.
type Granted = (Access, Option<Instant>);

/// One host, with one caller's credentials, for one repository.
pub(crate) struct Client {
    http: reqwest::Client,
    /// `https://host/v2`, or as the operator has it.
    api: String,
    repository: String,
    /// The query that names the registry which a mirror stands for.
    namespace: String,
    auth: Auth,
    granted: Mutex<Option<Granted>>,
}

impl Client {
    /// Makes the client. `silence` is the most time between two pieces of an answer.
    pub(crate) fn new(
        host: &Host,
        reference: &Reference,
        auth: Auth,
        plain: bool,
        silence: Duration,
    ) -> Result<Client, reqwest::Error> {
        // A client refuses to be made without a provider of the process; that there is one already is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let roots: Result<Vec<_>, _> = host.roots.iter().map(|pem| Certificate::from_pem(pem)).collect();
        let mut builder = reqwest::Client::builder();
        if let Some(identity) = &host.identity {
            builder = builder.identity(Identity::from_pem(identity)?);
        }
        let registry = reference.resolve_registry();
        if is_loopback(registry) {
            // Whatever the environment says of proxies: theirs is another loopback.
            builder = builder.no_proxy();
        }
        let http = builder
            .danger_accept_invalid_certs(host.skip_verify)
            .tls_certs_merge(roots?)
            .default_headers(host.headers.clone())
            .connect_timeout(host.connect.unwrap_or(CONNECT_LIMIT))
            .read_timeout(silence)
            .user_agent(concat!("podvisor/", env!("CARGO_PKG_VERSION")))
            // Whatever other crates turn on.
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .build()?;
        let scheme = if plain { "http" } else { "https" };
        let namespace = reference.namespace().map_or_else(String::new, |name| format!("?ns={name}"));
        Ok(Client {
            http,
            api: format!("{scheme}://{registry}{}", host.api),
            repository: reference.repository().to_owned(),
            namespace,
            auth,
            granted: Mutex::default(),
        })
    }

    /// Gets the manifest of a tag or digest, of at most `limit` bytes.
    pub(crate) async fn manifest(
        &self,
        reference: &Reference,
        accepted: &[&str],
        limit: u64,
    ) -> Result<Bytes, ClientError> {
        let name = reference.digest().or(reference.tag()).unwrap_or("latest");
        let request = self.get("manifests", name).header(ACCEPT, accepted.join(", "));
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::OK => read(response, limit).await,
            _ => Err(refusal(response).await),
        }
    }

    /// Gets a blob's bytes from `offset` on, or from 0 on; returns which.
    pub(crate) async fn blob(
        &self,
        digest: &str,
        offset: u64,
    ) -> Result<(u64, BoxStream<'static, std::io::Result<Bytes>>), ClientError> {
        let request = self.get("blobs", digest);
        let request = match offset {
            0 => request,
            _ => request.header(RANGE, format!("bytes={offset}-")),
        };
        let response = self.send(request).await?;
        let offset = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => offset,
            _ => return Err(refusal(response).await),
        };
        Ok((offset, response.bytes_stream().map_err(std::io::Error::other).boxed()))
    }

    fn get(&self, kind: &str, name: &str) -> RequestBuilder {
        let Client { api, repository, namespace, .. } = self;
        self.http.get(format!("{api}/{repository}/{kind}/{name}{namespace}"))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let access = self.access().await?;
        let again = request.try_clone();
        let response = access.prove(request).send().await?;
        let challenge = Challenge::of(response.headers());
        let (StatusCode::UNAUTHORIZED, Some(again)) = (response.status(), again) else { return Ok(response) };
        let granted = match (&access, &self.auth, challenge) {
            (_, Auth::Token(_), _) | (_, _, Challenge::None) | (Access::Basic(..), _, Challenge::Other) => {
                return Ok(response);
            }
            (.., challenge) => self.answer(challenge).await?,
        };
        if matches!(granted.0, Access::None) {
            return Ok(response);
        }
        self.keep(&granted);
        Ok(granted.0.prove(again).send().await?)
    }

    /// Gets access if the host wants that, or a new token where the last one has ended.
    pub(crate) async fn log_in(&self) -> Result<(), ClientError> {
        self.access().await.map(drop)
    }

    async fn access(&self) -> Result<Access, ClientError> {
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((access, end)) = granted
            && end.is_none_or(|end| Instant::now() < end)
        {
            return Ok(access);
        }
        let granted = self.ask_for_access().await?;
        self.keep(&granted);
        Ok(granted.0)
    }

    fn keep(&self, granted: &Granted) {
        *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = Some(granted.clone());
    }

    async fn ask_for_access(&self) -> Result<Granted, ClientError> {
        if let Auth::Token(token) = &self.auth {
            return Ok((Access::Bearer(token.clone()), None));
        }
        let response = self.http.get(format!("{}/", self.api)).send().await?;
        let mut challenge = Challenge::of(response.headers());
        // Nothing in particular was asked for: the scope there is a placeholder (ghcr.io has `repository:user/image:pull`).
        if let Challenge::Token(bearer) = &mut challenge {
            bearer.scope = None;
        }
        self.answer(challenge).await
    }

    /// Gets the access that a challenge wants.
    async fn answer(&self, challenge: Challenge) -> Result<Granted, ClientError> {
        match (challenge, &self.auth) {
            (Challenge::Token(token), _) => self.token(token).await,
            (Challenge::Other, Auth::Password(name, password)) => {
                Ok((Access::Basic(name.clone(), password.clone()), None))
            }
            (Challenge::None | Challenge::Other, _) => Ok((Access::None, None)),
        }
    }

    /// Gets a token from the place that the host names: with an identity token by OAuth2 (docker-registry token
    /// specification, `oauth`), otherwise by the older way, which every host has.
    async fn token(&self, challenge: Bearer) -> Result<Granted, ClientError> {
        let scopes = token::scopes(&self.repository, challenge.scope.as_deref());
        // OAuth2 has one field, with spaces (RFC 6749, section 3.3); the older way has one for each.
        let joined = scopes.join(" ");
        let mut fields = match &self.auth {
            Auth::Identity(_) => vec![("scope", joined.as_str())],
            _ => scopes.iter().map(|scope| ("scope", scope.as_str())).collect(),
        };
        fields.extend(challenge.service.as_deref().map(|service| ("service", service)));
        let request = match &self.auth {
            Auth::Identity(token) => {
                fields.extend([
                    ("grant_type", "refresh_token"),
                    ("refresh_token", token.as_str()),
                    ("client_id", "podvisor"),
                ]);
                self.http.post(challenge.realm).form(&fields)
            }
            Auth::Password(name, password) => {
                self.http.get(challenge.realm).query(&fields).basic_auth(name, Some(password))
            }
            Auth::Anonymous | Auth::Token(_) => self.http.get(challenge.realm).query(&fields),
        };
        let asked = Instant::now();
        let response = request.send().await?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                let reason = String::from_utf8_lossy(&beginning(response).await?).into_owned();
                return Err(ClientError::Failed(OciDistributionError::AuthenticationFailure(reason)));
            }
            _ => return Err(refusal(response).await),
        }
        let body = read(response, TOKEN_BYTES_MAX).await?;
        let token = Token::parse(&body)
            .map_err(|why| ClientError::Failed(OciDistributionError::RegistryTokenDecodeError(why)))?;
        Ok((Access::Bearer(token.value), Some(asked + token.life)))
    }
}

/// Whether a registry's address, with port and path, is of this node.
pub(crate) fn is_loopback(registry: &str) -> bool {
    let Ok(url) = Url::parse(&format!("http://{registry}")) else { return false };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Reads a body whole, and no further than `limit`.
async fn read(mut response: Response, limit: u64) -> Result<Bytes, ClientError> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        let size = body.len() as u64;
        if size > limit {
            return Err(ClientError::TooLong { size, limit });
        }
    }
    Ok(body.freeze())
}

/// Reads the beginning of a body.
async fn beginning(mut response: Response) -> Result<Bytes, ClientError> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        let room = usize::try_from(ERROR_BYTES_MAX).unwrap_or(usize::MAX) - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= room {
            break;
        }
    }
    Ok(body.freeze())
}

/// The failure that another status than the wanted one stands for.
async fn refusal(response: Response) -> ClientError {
    let (status, url) = (response.status(), response.url().to_string());
    let wait = response.headers().get(RETRY_AFTER).and_then(retry_after);
    // The status says enough where the body breaks off.
    let body = beginning(response).await.unwrap_or_default();
    let code = status.as_u16();
    let source = match serde_json::from_slice::<OciEnvelope>(&body) {
        _ if status == StatusCode::UNAUTHORIZED => OciDistributionError::UnauthorizedError { url },
        Ok(envelope) if status.is_client_error() => OciDistributionError::RegistryError { envelope, url },
        _ => {
            let message = String::from_utf8_lossy(&body).into_owned();
            OciDistributionError::ServerError { code, url, message }
        }
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS => ClientError::Busy { source, wait },
        StatusCode::SERVICE_UNAVAILABLE if wait.is_some() => ClientError::Busy { source, wait },
        _ => ClientError::Failed(source),
    }
}
