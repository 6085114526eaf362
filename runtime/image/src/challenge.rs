//! A host's demands before it answers: access, or a pause. Owns the headers for them; `access.rs` and
//! `client.rs` act on them.
//!
//! Challenges are parsed like in other registry clients. This is more lenient than the grammar (RFC 9110,
//! section 11.6.1): any number of spaces, `;` instead of a comma, addresses without quotes, and schemes with
//! more than parameters.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};

/// Most challenges read from one answer.
const CHALLENGES_MAX: usize = 32;

/// A host's demand for access.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    None,
    /// The host wants a token.
    Token(Bearer),
    /// The host wants name and password.
    Password,
    /// The host wants something unknown here; the text names it.
    Other(String),
}

impl Challenge {
    /// Chooses the challenge to answer: the first one for a token, otherwise one for a password.
    pub(crate) fn of(headers: &HeaderMap) -> Challenge {
        let mut found: Vec<Scheme> = Vec::new();
        for header in headers.get_all(WWW_AUTHENTICATE) {
            found.extend(schemes(header.as_bytes()));
        }
        found.truncate(CHALLENGES_MAX);
        let bearer = |scheme: &Scheme| scheme.bearer();
        if let Some(bearer) = found.iter().find_map(bearer) {
            return Challenge::Token(bearer);
        }
        if found.iter().any(|scheme| scheme.is("Basic")) {
            return Challenge::Password;
        }
        match headers.contains_key(WWW_AUTHENTICATE) {
            true => {
                Challenge::Other(found.into_iter().map(|scheme| scheme.name).collect::<Vec<_>>().join(", "))
            }
            false => Challenge::None,
        }
    }

    /// Returns true if the host reports the shown access as insufficient for this request.
    pub(crate) fn wants_more(&self) -> bool {
        matches!(self, Challenge::Token(bearer) if bearer.error.as_deref() == Some("insufficient_scope"))
    }
}

/// A challenge asking for a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) realm: String,
    pub(crate) service: Option<String>,
    /// The rights required for the request. Absent if nothing in particular was requested.
    pub(crate) scope: Option<String>,
    error: Option<String>,
}

/// One challenge: a scheme, and its parameters.
#[derive(Debug, Default)]
struct Scheme {
    name: String,
    parameters: Vec<(String, String)>,
}

impl Scheme {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    fn bearer(&self) -> Option<Bearer> {
        let value = |wanted: &str| {
            let mut all = self.parameters.iter().rev();
            let found = all.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        if !self.is("Bearer") {
            return None;
        }
        let (service, scope, error) = (value("service"), value("scope"), value("error"));
        Some(Bearer { realm: value("realm")?, service, scope, error })
    }
}

/// Parses the challenges of one header.
fn schemes(header: &[u8]) -> Vec<Scheme> {
    let mut found: Vec<Scheme> = Vec::new();
    let mut rest = header;
    while found.len() <= CHALLENGES_MAX {
        rest = after_while(rest, |byte| !is_token(byte));
        if rest.is_empty() {
            break;
        }
        let after = after_while(rest, is_token);
        let name = String::from_utf8_lossy(&rest[..rest.len() - after.len()]).into_owned();
        rest = after_while(after, is_space);
        let Some(value) = rest.strip_prefix(b"=") else {
            found.push(Scheme { name, parameters: Vec::new() });
            continue;
        };
        let (value, after) = parameter(after_while(value, is_space));
        rest = after;
        if let Some(scheme) = found.last_mut() {
            scheme.parameters.push((name, value));
        }
    }
    found
}

/// Returns the value at the beginning, quoted or not, and the rest.
fn parameter(bytes: &[u8]) -> (String, &[u8]) {
    let Some(quoted) = bytes.strip_prefix(b"\"") else {
        let after = after_while(bytes, |byte| !is_space(byte) && byte != b',');
        return (String::from_utf8_lossy(&bytes[..bytes.len() - after.len()]).into_owned(), after);
    };
    let (mut value, mut at) = (Vec::new(), 0);
    while let Some(byte) = quoted.get(at) {
        match byte {
            b'"' => {
                at += 1;
                break;
            }
            b'\\' => {
                value.extend(quoted.get(at + 1));
                at += 2;
            }
            other => {
                value.push(*other);
                at += 1;
            }
        }
    }
    (String::from_utf8_lossy(&value).into_owned(), quoted.get(at..).unwrap_or_default())
}

fn after_while(bytes: &[u8], is_skipped: impl Fn(u8) -> bool) -> &[u8] {
    let end = bytes.iter().position(|byte| !is_skipped(*byte)).unwrap_or(bytes.len());
    &bytes[end..]
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Letters of names. Some schemes are followed by base64 or by letters beyond ASCII, so those count too.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte) || byte >= 0x80
}

/// Parses seconds, or a time (RFC 9110, section 10.2.3).
pub(crate) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
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
    use proptest::prelude::*;

    use super::*;

    fn challenge(headers: &[&str]) -> Challenge {
        let values = headers.iter().map(|text| HeaderValue::from_bytes(text.as_bytes()).unwrap());
        Challenge::of(&values.map(|value| (WWW_AUTHENTICATE, value)).collect())
    }

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let (service, scope) = (service.map(str::to_owned), scope.map(str::to_owned));
        Challenge::Token(Bearer { realm: realm.to_owned(), service, scope, error: None })
    }

    #[test]
    fn the_first_challenge_for_a_token_is_answered() {
        let header =
            r#"Basic realm="x", Bearer Realm="https://a.example/token",service="r.example",scope="y""#;
        assert_eq!(challenge(&[header]), bearer("https://a.example/token", Some("r.example"), Some("y")));
        assert_eq!(
            challenge(&[
                "Basic realm=x",
                "bearer realm=https://a.example:5/t?x=y , service=\"\"",
                "Bearer realm=b"
            ]),
            bearer("https://a.example:5/t?x=y", None, None)
        );
        assert_eq!(
            challenge(&[r#"Bearer realm="a\"b\\",realm="c, Bearer d""#]),
            bearer("c, Bearer d", None, None)
        );
        assert_eq!(challenge(&[r#"Negotiate a4+/==, Bearer realm="a"#]), bearer("a", None, None));
    }

    #[test]
    fn what_asks_for_no_token_asks_for_a_password_or_cannot_be_answered() {
        assert_eq!(challenge(&[]), Challenge::None);
        for password in ["Basic", "BASIC realm=\"Bearer realm=x\"", "Bearer service=\"x\", basic realm=\"x\""]
        {
            assert_eq!(challenge(&[password]), Challenge::Password, "{password}");
        }
        for (other, named) in [
            ("", ""),
            ("Bearer", "Bearer"),
            ("Negotiate, NTLM", "Negotiate, NTLM"),
            ("realm=\"x\"", ""),
            ("Bearer realm=\"\"", "Bearer"),
            ("Bearer ,,=", "Bearer"),
        ] {
            assert_eq!(challenge(&[other]), Challenge::Other(named.to_owned()), "{other}");
        }
    }

    #[test]
    fn a_host_says_that_a_token_does_not_suffice() {
        assert!(challenge(&["Bearer realm=\"x\",error=\"insufficient_scope\""]).wants_more());
        assert!(!challenge(&["Bearer realm=\"x\",error=\"invalid_token\""]).wants_more());
        assert!(!challenge(&["Basic realm=\"x\",error=\"insufficient_scope\""]).wants_more());
    }

    #[test]
    fn a_wait_is_in_seconds_or_until_a_time() {
        let wait = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let far = wait("Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
        assert!(far > Duration::from_secs(1_000_000_000), "{far:?}");
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
    }

    proptest! {
        #[test]
        fn a_quoted_value_is_whatever_was_quoted(value in "[ -~]{1,30}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Bearer service=\"x\",realm=\"{quoted}\",other=\"y\"");
            prop_assert_eq!(challenge(&[&header]), bearer(&value, Some("x"), None));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = schemes(&bytes);
        }
    }
}
