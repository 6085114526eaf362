//! The answers of a host: bodies that are bounded as they come, and what a refusal says. Owns the errors of a client; what one means for
//! a caller is `endpoint.rs`'s.
//!
//! A body's length counts as it comes, whatever the host has announced, and nothing is decoded: a bound on bytes received
//! is a bound on bytes held.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use oci_client::errors::{OciDistributionError, OciEnvelope};
use reqwest::header::{CONTENT_RANGE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use url::Url;

use crate::challenge::retry_after;
use crate::said::said;

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
    /// There is no access to be had; the text says why, after a colon.
    NoAccess(String),
    /// The access is not enough; the text says why, after a colon.
    Denied(String),
    /// There is no such thing.
    Missing,
    /// The body is longer than `limit`; `size` bytes of it have come.
    TooLong { size: u64, limit: u64 },
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        ClientError::Failed(shown(error).into())
    }
}

/// The place in a blob at which an answer's body begins; none where it has no such body, or does not say (RFC 9110, section 14.4).
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

/// Reads a body whole, and no further than `limit`.
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

/// The failure that another status than the wanted one stands for.
pub(crate) async fn refusal(response: Response) -> ClientError {
    let (status, url) = (response.status(), without_query(response.url().clone()));
    let wait = response.headers().get(RETRY_AFTER).and_then(retry_after);
    // The status says enough where the body breaks off.
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

/// An address for people: a query may hold a signature, with which anybody could fetch.
fn without_query(mut url: Url) -> Url {
    url.set_query(None);
    url
}
