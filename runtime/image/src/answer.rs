//! The answers of a host: size-limited bodies, and the contents of a refusal. Owns the errors of a client.
//! `endpoint.rs` decides their meaning for a caller.
//!
//! A body's length is counted as it arrives, whatever the host has announced. Nothing is decompressed here,
//! so a bound on received bytes is a bound on memory.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use oci_client::errors::{OciDistributionError, OciEnvelope};
use reqwest::header::{CONTENT_RANGE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use url::Url;

use crate::challenge::retry_after;
use crate::digest::digest_hex;
use crate::said::said;

/// Most bytes read of an error's body; the rest is ignored.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// The reason for having no answer.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The connection broke, or the host refused.
    Failed(OciDistributionError),
    /// The host accepts no more requests for now.
    Busy {
        source: OciDistributionError,
        /// How long to wait before the next request, if the host says so.
        wait: Option<Duration>,
    },
    /// Access was refused. The text gives the reason, after a colon.
    NoAccess(String),
    /// The access is not sufficient. The text gives the reason, after a colon.
    Denied(String),
    /// The host has no such content.
    Missing,
    /// The body is longer than `limit`; `size` bytes have arrived.
    TooLong { size: u64, limit: u64 },
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        ClientError::Failed(shown(error).into())
    }
}

/// Returns the offset in a blob of an answer's first byte. Returns `None` if the answer has no such body or
/// no offset (RFC 9110, section 14.4).
pub(crate) fn beginning_of(response: &Response) -> Option<u64> {
    match response.status() {
        StatusCode::OK => Some(0),
        StatusCode::PARTIAL_CONTENT => {
            let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
            let (unit, range) = range.trim().split_once(' ')?;
            let (first, _) = range.trim_start().split_once('-')?;
            first.parse().ok().filter(|_| unit.eq_ignore_ascii_case("bytes"))
        }
        _ => None,
    }
}

/// Returns the digest of an answer's document, if the host says a valid one (OCI distribution specification,
/// "Pulling manifests").
pub(crate) fn digest_of(response: &Response) -> Option<String> {
    let digest = response.headers().get("docker-content-digest")?.to_str().ok()?.trim();
    digest_hex(digest).is_ok().then(|| digest.to_owned())
}

/// Reads a whole body, of at most `limit` bytes.
pub(crate) async fn read(mut response: Response, limit: u64) -> Result<Bytes, ClientError> {
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
pub(crate) async fn beginning(mut response: Response) -> Result<Bytes, ClientError> {
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

/// Converts an answer with an unexpected status into an error.
pub(crate) async fn refusal(response: Response) -> ClientError {
    let (status, url) = (response.status(), without_query(response.url().clone()));
    let wait = response.headers().get(RETRY_AFTER).and_then(retry_after);
    // If the body breaks off, the status is enough.
    let body = beginning(response).await.unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED => return ClientError::NoAccess(said(&body)),
        StatusCode::FORBIDDEN => return ClientError::Denied(said(&body)),
        StatusCode::NOT_FOUND => return ClientError::Missing,
        _ => {}
    }
    let (code, url) = (status.as_u16(), url.to_string());
    let source = match serde_json::from_slice::<OciEnvelope>(&body) {
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

pub(crate) fn shown(mut error: reqwest::Error) -> reqwest::Error {
    if let Some(url) = error.url_mut() {
        url.set_query(None);
    }
    error
}

/// Removes the query from an address before it is shown: a query may hold a signature, and anyone could fetch
/// with it.
fn without_query(mut url: Url) -> Url {
    url.set_query(None);
    url
}
