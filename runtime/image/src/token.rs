//! Access tokens of registries (docker-registry token specification): the requested rights, and the answer.
//! Pure.

use std::time::Duration;

use crate::json::Json;

/// Lifetime of a token if its host names none (`expires_in`).
const LIFE: Duration = Duration::from_secs(60);

/// The longest accepted lifetime of a token.
const LIFE_MAX: Duration = Duration::from_secs(3600);

/// The end of a token's lifetime in which it is no longer used: it must not expire on its way.
const MARGIN: Duration = Duration::from_secs(10);

/// A token and its time of use.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) value: String,
    pub(crate) life: Duration,
}

impl Token {
    /// Reads an answer, and ignores anything after it. Some services give the token under both names.
    ///
    /// # Errors
    /// The answer is not JSON, or has no token. The error says which.
    pub(crate) fn parse(answer: &[u8]) -> Result<Token, String> {
        let answer = Json::first(answer)?.fields()?;
        let tokens = [answer.text("token")?, answer.text("access_token")?];
        let value = tokens.into_iter().find(|token| !token.is_empty());
        let value = value.ok_or("neither token nor access_token is there")?;
        let life = answer.values("expires_in").filter_map(seconds).last().map_or(LIFE, Duration::from_secs);
        Ok(Token { value, life: life.clamp(LIFE, LIFE_MAX) - MARGIN })
    }
}

/// Returns a number of seconds. Some hosts write it as a text or with a fraction.
fn seconds(value: Json<'_>) -> Option<u64> {
    value.number().filter(|seconds| *seconds > 0.0).map(|seconds| seconds as u64)
}

/// The requested rights: pulling from the repository, and the rights named in the host's refusal.
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
        for (text, expected) in [
            ("300", Some(300)),
            ("\"300\"", Some(300)),
            ("299.9", Some(299)),
            ("3e2", Some(300)),
            ("-1", None),
            ("0", None),
            ("\"soon\"", None),
            ("null", None),
            ("{}", None),
        ] {
            assert_eq!(seconds(Json::parse(text.as_bytes()).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn a_token_has_one_name_or_the_other_and_a_bounded_life() {
        for (answer, value, life) in [
            (r#"{"token":"","access_token":"a","expires_in":1000000}"#, "a", LIFE_MAX),
            (r#"{"token":"a","expires_in":1,"scope":["x"],"issued_at":"never"}"#, "a", LIFE),
            (r#"{"Token":"a","expires_in":"300"} {"more":1}"#, "a", Duration::from_secs(300)),
            (r#"{"access_token":"a","token":null,"refresh_token":"b","expires_in":null}"#, "a", LIFE),
            (r#"{"token":"b","token":"a"}"#, "a", LIFE),
        ] {
            let found = Token::parse(answer.as_bytes()).unwrap();
            assert_eq!((found.value.as_str(), found.life), (value, life - MARGIN), "{answer}");
        }
        for (answer, words) in [
            (r#"{"token":null}"#, "neither token nor access_token is there"),
            (r#"{"token":7}"#, "token: a number where a text is wanted"),
            ("<html>", "expected value"),
            ("[]", "a list where an object is wanted"),
        ] {
            let wrong = Token::parse(answer.as_bytes()).unwrap_err();
            assert!(wrong.contains(words), "{wrong}");
        }
    }
}
