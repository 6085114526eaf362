//! The HTTP client of one host: requests, and size-limited bodies. Owns the wire form of pulls in the OCI
//! distribution specification. `endpoint.rs` decides the meaning of errors for a caller.
//!
//! The host's API root is requested first. Its challenge, if any, names the required access, and `access.rs`
//! gets it. A later request may still be refused with a challenge: a token may have expired, and some hosts
//! ask for one only when needed. The client then gets the requested access and sends the request once more.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use oci_client::Reference;
use oci_client::errors::OciDistributionError;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, RANGE};
use reqwest::{ClientBuilder, Identity, Method, Proxy, RequestBuilder, Response, StatusCode};

use crate::access::{Access, Auth, Keys};
use crate::answer::{ClientError, beginning_of, digest_of, read, refusal, shown};
use crate::challenge::Challenge;
use crate::hosts::Host;
use crate::proxy::Proxies;
use crate::trust;

/// Most time to open a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// One host, with one caller's credentials, for one repository.
pub(crate) struct Client {
    http: reqwest::Client,
    /// `https://host/v2`, or as the operator has it.
    api: String,
    repository: String,
    /// The query with the registry's name, for a mirror.
    namespace: String,
    keys: Keys,
}

impl Client {
    /// Creates the client. `silence` is the most time between two pieces of an answer.
    pub(crate) fn new(
        host: &Host,
        reference: &Reference,
        auth: Auth,
        plain: bool,
        silence: Duration,
    ) -> Result<Client, OciDistributionError> {
        let registry = match reference.resolve_registry() {
            // The name that Docker's list of hosts for firewalls has, and that other runtimes ask.
            "index.docker.io" => "registry-1.docker.io",
            registry => registry,
        };
        let proxies = Proxies::of_environment();
        let http = tls(host)?
            .proxy(Proxy::custom(move |url| proxies.of(url)))
            .default_headers(host.headers.clone())
            .connect_timeout(host.connect.unwrap_or(CONNECT_LIMIT))
            .read_timeout(silence)
            .user_agent(concat!("podvisor/", env!("CARGO_PKG_VERSION")))
            // Other crates may enable these features.
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .build()?;
        let scheme = if plain { "http" } else { "https" };
        let namespace = reference.namespace().map_or_else(String::new, |name| format!("?ns={name}"));
        let repository = reference.repository().to_owned();
        let keys = Keys::new(http.clone(), repository.clone(), auth);
        let api = format!("{scheme}://{registry}{}", host.api);
        Ok(Client { http, api, repository, namespace, keys })
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

    /// Asks for the digest of a manifest, without the manifest. `None` if the host does not say it.
    pub(crate) async fn manifest_digest(
        &self,
        reference: &Reference,
        accepted: &[&str],
    ) -> Result<Option<String>, ClientError> {
        let name = reference.digest().or(reference.tag()).unwrap_or("latest");
        let request = self.request(Method::HEAD, "manifests", name).header(ACCEPT, accepted.join(", "));
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::OK => Ok(digest_of(&response)),
            _ => Err(refusal(response).await),
        }
    }

    /// Gets a blob's bytes from `offset`, or from an earlier position. Returns the position.
    pub(crate) async fn blob(
        &self,
        digest: &str,
        offset: u64,
    ) -> Result<(u64, BoxStream<'static, std::io::Result<Bytes>>), ClientError> {
        let mut response = self.blob_from(digest, offset).await?;
        let mut begin = beginning_of(&response);
        if offset > 0 && response.status().is_success() && begin.is_none_or(|begin| begin > offset) {
            tracing::debug!(
                digest,
                offset,
                ?begin,
                "a host sends another part of a blob, and is asked for the whole"
            );
            response = self.blob_from(digest, 0).await?;
            begin = beginning_of(&response);
        }
        match begin.filter(|begin| *begin <= offset) {
            Some(begin) => {
                let stream = response.bytes_stream().map_err(|error| std::io::Error::other(shown(error)));
                Ok((begin, stream.boxed()))
            }
            None => Err(refusal(response).await),
        }
    }

    async fn blob_from(&self, digest: &str, offset: u64) -> Result<Response, ClientError> {
        let request = self.get("blobs", digest);
        self.send(match offset {
            0 => request,
            _ => request.header(RANGE, format!("bytes={offset}-")),
        })
        .await
    }

    fn get(&self, kind: &str, name: &str) -> RequestBuilder {
        self.request(Method::GET, kind, name)
    }

    fn request(&self, method: Method, kind: &str, name: &str) -> RequestBuilder {
        let Client { api, repository, namespace, .. } = self;
        // Digests are computed over the unencoded bytes. Without this header a server may choose any
        // encoding.
        let request = self.http.request(method, format!("{api}/{repository}/{kind}/{name}{namespace}"));
        request.header(ACCEPT_ENCODING, "identity")
    }

    /// Sends a request with the current access. If it is refused with a challenge, gets the requested access
    /// and retries once.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let access = self.access().await?;
        let again = request.try_clone();
        let (asked, response) = match access.prove(request).build() {
            Ok(request) => (request.url().clone(), self.http.execute(request).await?),
            Err(error) => return Err(error.into()),
        };
        let challenge = Challenge::of(response.headers());
        let is_refused = match response.status() {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => challenge.wants_more(),
            _ => false,
        };
        let (true, Some(again)) = (is_refused, again) else { return Ok(response) };
        if response.url().origin() != asked.origin() {
            // The host has redirected us. The target gets none of the caller's credentials.
            let Some(access) = self.keys.elsewhere(&challenge).await? else { return Ok(response) };
            let mut request = access.prove(again).build()?;
            *request.url_mut() = response.url().clone();
            return Ok(self.http.execute(request).await?);
        }
        match self.keys.replace(&access, &challenge).await? {
            Some(access) => Ok(access.prove(again).send().await?),
            None => Ok(response),
        }
    }

    /// Gets access if the host requires it, or a new token if the last one has expired.
    pub(crate) async fn log_in(&self) -> Result<(), ClientError> {
        self.access().await.map(drop)
    }

    async fn access(&self) -> Result<Access, ClientError> {
        if let Some(access) = self.keys.at_hand() {
            return Ok(access);
        }
        let request = self.http.get(format!("{}/", self.api)).build()?;
        let asked = request.url().origin();
        let response = self.http.execute(request).await?;
        let challenge = match response.url().origin() == asked {
            true => Challenge::of(response.headers()),
            // A redirect's target wants this, and gets none of the caller's credentials. The host's own
            // challenge, if any, comes with the real request.
            false => Challenge::None,
        };
        self.keys.enter(challenge).await
    }
}

/// Starts a client with the host's settings of TLS.
fn tls(host: &Host) -> Result<ClientBuilder, OciDistributionError> {
    // reqwest needs a crypto provider for the process. An existing one is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder();
    if !host.skip_verify {
        return Ok(builder.tls_backend_preconfigured(trust::tls(host).map_err(io::Error::other)?));
    }
    let builder = builder.danger_accept_invalid_certs(true);
    Ok(match &host.identity {
        Some(identity) => builder.identity(Identity::from_pem(identity)?),
        None => builder,
    })
}
