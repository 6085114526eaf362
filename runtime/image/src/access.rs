//! Access to one host: obtains the required proof of a caller's rights and keeps it while it is valid. Owns
//! Docker's token authentication (distribution, `spec/auth`). `token.rs` reads the answers, and `client.rs`
//! sends the actual requests.
//!
//! ```text
//!   Basic ───────────────────► the caller's name and password, if any
//!   Bearer realm, service ───► realm, by GET or POST ──► token, valid for as long as the host says
//! ```
//! A service may support only one of GET and POST. Each kind of credentials starts with the way most services
//! support. If the service refuses, the other way is tried (containerd does the same in reverse).

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use oci_client::errors::OciDistributionError;
use reqwest::{RequestBuilder, Response, StatusCode};
use url::Url;

use crate::answer::{ClientError, beginning, read, refusal};
use crate::challenge::{Bearer, Challenge};
use crate::said::said;
use crate::token::{self, Token};

/// Most bytes of an answer with a token. A token is sent in a header, and servers accept far less there.
const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// The name of this client for OAuth2 services.
const CLIENT: (&str, &str) = ("client_id", "podvisor");

/// Proof of a caller's rights, sent with requests.
#[derive(Clone)]
pub(crate) enum Access {
    None,
    Basic(String, String),
    Bearer(String),
}

impl Access {
    pub(crate) fn prove(&self, request: RequestBuilder) -> RequestBuilder {
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
    /// A token used directly with the registry.
    Token(String),
    /// A token for the registry's service, exchanged there for a token per repository.
    Identity(String),
}

/// The ways of requesting a token from a service.
#[derive(Debug, Clone, Copy)]
enum Way {
    Get,
    /// OAuth2.
    Post,
}

/// An access and its expiry.
type Granted = (Access, Option<Instant>);

/// One caller's access to one repository of a host.
pub(crate) struct Keys {
    http: reqwest::Client,
    repository: String,
    auth: Auth,
    granted: Mutex<Option<Granted>>,
}

impl Keys {
    pub(crate) fn new(http: reqwest::Client, repository: String, auth: Auth) -> Keys {
        Keys { http, repository, auth, granted: Mutex::default() }
    }

    /// Returns the previous access unless it has expired. A registry's token is used directly and never
    /// requested.
    pub(crate) fn at_hand(&self) -> Option<Access> {
        if let Auth::Token(token) = &self.auth {
            return Some(Access::Bearer(token.clone()));
        }
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        granted.filter(|(_, end)| end.is_none_or(|end| Instant::now() < end)).map(|(access, _)| access)
    }

    /// Gets the access required by a host before the first real request.
    pub(crate) async fn enter(&self, mut challenge: Challenge) -> Result<Access, ClientError> {
        // The request was for nothing in particular, so the scope is a placeholder (ghcr.io has
        // `repository:user/image:pull`).
        if let Challenge::Token(bearer) = &mut challenge {
            bearer.scope = None;
        }
        match self.answer(&challenge).await {
            // The image may still be public. If it is not, the refusal of the real request gives the reason.
            Err(ClientError::NoAccess(_))
                if matches!(self.auth, Auth::Anonymous) || matches!(challenge, Challenge::Other(_)) =>
            {
                self.keep((Access::None, None));
                Ok(Access::None)
            }
            other => other,
        }
    }

    /// Gets the access required by a refusal, if it differs from the one `shown`.
    pub(crate) async fn replace(
        &self,
        shown: &Access,
        challenge: &Challenge,
    ) -> Result<Option<Access>, ClientError> {
        match (shown, &self.auth, challenge) {
            (_, Auth::Token(_), _) | (Access::Basic(..), _, Challenge::Password) => Ok(None),
            _ => match self.answer(challenge).await? {
                Access::None => Ok(None),
                access => Ok(Some(access)),
            },
        }
    }

    /// Gets anonymous access to another host after a redirect.
    pub(crate) async fn elsewhere(&self, challenge: &Challenge) -> Result<Option<Access>, ClientError> {
        let Challenge::Token(bearer) = challenge else { return Ok(None) };
        let scopes =
            bearer.scope.iter().flat_map(|scope| scope.split_whitespace()).map(str::to_owned).collect();
        let (access, _) = self.token(bearer, scopes, &Auth::Anonymous).await?;
        Ok(Some(access))
    }

    async fn answer(&self, challenge: &Challenge) -> Result<Access, ClientError> {
        let granted = match (challenge, &self.auth) {
            (Challenge::Token(bearer), auth) => {
                self.token(bearer, token::scopes(&self.repository, bearer.scope.as_deref()), auth).await?
            }
            (Challenge::Password, Auth::Password(name, password)) => {
                (Access::Basic(name.clone(), password.clone()), None)
            }
            (Challenge::Other(schemes), _) => {
                return Err(ClientError::NoAccess(format!(": it wants {schemes}, unknown here")));
            }
            (Challenge::None | Challenge::Password, _) => (Access::None, None),
        };
        self.keep(granted.clone());
        Ok(granted.0)
    }

    fn keep(&self, granted: Granted) {
        *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = Some(granted);
    }

    /// Gets a token from the address named by the host.
    async fn token(&self, bearer: &Bearer, scopes: Vec<String>, auth: &Auth) -> Result<Granted, ClientError> {
        let realm = Url::parse(&bearer.realm).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(realm) = realm else {
            let reason = format!(": the place for its tokens, {:?}, is no address", bearer.realm);
            return Err(ClientError::NoAccess(reason));
        };
        let ways = match auth {
            Auth::Identity(_) => [Some(Way::Post), Some(Way::Get)],
            Auth::Password(..) => [Some(Way::Get), Some(Way::Post)],
            Auth::Anonymous | Auth::Token(_) => [Some(Way::Get), None],
        };
        let mut refusals = Vec::new();
        for way in ways.into_iter().flatten() {
            let request = request(&self.http, &realm, bearer.service.as_deref(), &scopes, auth, way);
            let asked = Instant::now();
            let response = request.send().await?;
            let status = response.status();
            if status.is_success() {
                let body = read(response, TOKEN_BYTES_MAX).await?;
                let token = Token::parse(&body).map_err(|why| {
                    ClientError::Failed(OciDistributionError::RegistryTokenDecodeError(why))
                })?;
                return Ok((Access::Bearer(token.value), Some(asked + token.life)));
            }
            if !status.is_client_error() || status == StatusCode::TOO_MANY_REQUESTS {
                return Err(refusal(response).await);
            }
            refusals.push(refused(&realm, response).await);
            if !is_of_the_way(status) {
                break;
            }
        }
        Err(ClientError::NoAccess(format!(": {}", refusals.join("; "))))
    }
}

/// Returns true if a service refusing with this status may still give a token the other way (containerd has
/// the same list).
fn is_of_the_way(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 401 | 404 | 405)
}

async fn refused(realm: &Url, response: Response) -> String {
    let status = response.status().as_u16();
    let body = beginning(response).await.unwrap_or_default();
    let (place, said) = (realm.host_str().unwrap_or_default(), said(&body));
    format!("{place} gives no token ({status}){said}")
}

fn request(
    http: &reqwest::Client,
    realm: &Url,
    service: Option<&str>,
    scopes: &[String],
    auth: &Auth,
    way: Way,
) -> RequestBuilder {
    // OAuth2 has one field, separated by spaces (RFC 6749, section 3.3). The older way has one field per
    // scope.
    let joined = scopes.join(" ");
    let mut fields = match way {
        Way::Post if scopes.is_empty() => Vec::new(),
        Way::Post => vec![("scope", joined.as_str())],
        Way::Get => scopes.iter().map(|scope| ("scope", scope.as_str())).collect(),
    };
    fields.extend(service.map(|service| ("service", service)));
    match (way, auth) {
        (Way::Post, Auth::Identity(token)) => {
            fields.extend([("grant_type", "refresh_token"), ("refresh_token", token.as_str()), CLIENT]);
            http.post(realm.clone()).form(&fields)
        }
        (Way::Post, Auth::Password(name, password)) => {
            fields.extend([("grant_type", "password"), ("username", name), ("password", password), CLIENT]);
            http.post(realm.clone()).form(&fields)
        }
        (_, Auth::Password(name, password)) => {
            http.get(realm.clone()).query(&fields).basic_auth(name, Some(password))
        }
        (_, Auth::Identity(token)) => http.get(realm.clone()).query(&fields).basic_auth("", Some(token)),
        (_, Auth::Anonymous | Auth::Token(_)) => http.get(realm.clone()).query(&fields),
    }
}
