//! Access tokens of registries (docker-registry token specification): the rights that are asked for, and the answer. Pure.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// How long a token lives of which its host does not say so (`expires_in`).
const LIFE: Duration = Duration::from_secs(60);

/// The longest life of a token that is believed.
const LIFE_MAX: Duration = Duration::from_secs(3600);

/// The part of a token's life in which it is not used any more: it must not end on its way.
const MARGIN: Duration = Duration::from_secs(10);

/// A token, and how long it is used.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) value: String,
    pub(crate) life: Duration,
}

/// The answer of the host's service: a token under one name or the other.
#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<Value>,
}

impl Token {
    /// Reads an answer.
    ///
    /// # Errors
    /// An answer that is no JSON, or has no token. The error says which.
    pub(crate) fn parse(answer: &[u8]) -> Result<Token, String> {
        let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        let tokens = [answer.token, answer.access_token].into_iter().flatten();
        let value = tokens.into_iter().find(|token| !token.is_empty()).ok_or("it has no token")?;
        let life = answer.expires_in.as_ref().and_then(seconds).map_or(LIFE, Duration::from_secs);
        Ok(Token { value, life: life.clamp(LIFE, LIFE_MAX) - MARGIN })
    }
}

/// A number of seconds, which some hosts write as a text or with a fraction.
fn seconds(value: &Value) -> Option<u64> {
    let text = || value.as_str()?.trim().parse().ok();
    let fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64);
    value.as_u64().or_else(text).or_else(fraction)
}

/// The rights to ask for: to pull from the repository, and what the host has refused a request for.
pub(crate) fn scopes(repository: &str, refused: Option<&str>) -> Vec<String> {
    let mut scopes = vec![format!("repository:{repository}:pull")];
    for scope in refused.into_iter().flat_map(str::split_whitespace) {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_for_the_repository_and_for_what_was_refused() {
        assert_eq!(scopes("a/b", None), ["repository:a/b:pull"]);
        assert_eq!(scopes("a/b", Some("")), ["repository:a/b:pull"]);
        let refused = "repository:a/b:pull repository:c/d:pull";
        assert_eq!(scopes("a/b", Some(refused)), ["repository:a/b:pull", "repository:c/d:pull"]);
    }

    #[test]
    fn a_life_in_seconds_is_a_number_or_a_text() {
        assert_eq!(seconds(&json!(300)), Some(300));
        assert_eq!(seconds(&json!("300")), Some(300));
        assert_eq!(seconds(&json!(299.9)), Some(299));
        assert_eq!((seconds(&json!(-1)), seconds(&json!("soon")), seconds(&json!(null))), (None, None, None));
    }

    #[test]
    fn a_token_has_one_name_or_the_other_and_a_bounded_life() {
        let token = |answer: Value| Token::parse(answer.to_string().as_bytes());
        let found = token(json!({ "token": "", "access_token": "a", "expires_in": 1_000_000 })).unwrap();
        assert_eq!((found.value.as_str(), found.life), ("a", LIFE_MAX - MARGIN));
        assert_eq!(token(json!({ "token": "a", "expires_in": 1 })).unwrap().life, LIFE - MARGIN);
        assert_eq!(token(json!({ "token": null })).unwrap_err(), "it has no token");
    }
}
