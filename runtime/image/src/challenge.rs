//! The demands of a host before it answers: access, or to be left alone for a while. Owns the headers that say so; `client.rs`
//! acts on them.

use std::time::{Duration, SystemTime};

use http_auth::{ChallengeParser, ChallengeRef};
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};

/// A host's demand for access.
pub(crate) enum Challenge {
    None,
    /// The host wants a token.
    Token(Bearer),
    /// The host wants name and password, or something unknown.
    Other,
}

impl Challenge {
    pub(crate) fn of(headers: &HeaderMap) -> Challenge {
        let mut texts = headers.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::to_str).peekable();
        if texts.peek().is_none() {
            return Challenge::None;
        }
        texts.flatten().find_map(bearer).map_or(Challenge::Other, Challenge::Token)
    }
}

/// A challenge that asks for a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) realm: String,
    pub(crate) service: Option<String>,
    /// The rights that the host wants for what was asked; a host that was asked for nothing in particular says none.
    pub(crate) scope: Option<String>,
}

/// The first challenge of a header that asks for a token.
fn bearer(header: &str) -> Option<Bearer> {
    ChallengeParser::new(header).flatten().find_map(|challenge: ChallengeRef<'_>| {
        if !challenge.scheme.eq_ignore_ascii_case("Bearer") {
            return None;
        }
        let value = |wanted: &str| {
            let mut all = challenge.params.iter();
            all.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_unescaped())
        };
        Some(Bearer { realm: value("realm")?, service: value("service"), scope: value("scope") })
    })
}

/// Seconds, or a time (RFC 9110, section 10.2.3).
pub(crate) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let time = httpdate::parse_http_date(text).ok()?;
            Some(time.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_challenge_for_a_token_is_answered() {
        let header =
            r#"Basic realm="x", Bearer Realm="https://a.example/token",service="r.example",scope="y""#;
        let found = bearer(header).unwrap();
        assert_eq!(
            (found.realm.as_str(), found.service.as_deref()),
            ("https://a.example/token", Some("r.example"))
        );
        let found = bearer(r#"bearer realm="https://a.example/""#).unwrap();
        assert_eq!(found.service, None);
        for none in ["", "Basic realm=\"x\"", "Bearer service=\"x\"", "Bearer realm", "\u{0}", "Bearer ,,="] {
            assert_eq!(bearer(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_wait_is_in_seconds_or_until_a_time() {
        let wait = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let far = wait("Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
        assert!(far > Duration::from_secs(1_000_000_000), "{far:?}");
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
    }
}
