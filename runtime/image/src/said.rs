//! A host's explanation of a refusal, for people. Owns its extraction from all known formats.

use crate::json::{Fields, Json};

/// Most letters shown of a host's text.
const LETTERS_MAX: usize = 300;

/// The field names used for the text by registries, OAuth2 services, Docker Hub and others.
const NAMES: [&str; 5] = ["message", "error_description", "details", "detail", "error"];

/// Returns the text of an error's body, after a colon. Empty if there is no readable text.
pub(crate) fn said(body: &[u8]) -> String {
    let words = match Json::parse(body).and_then(Json::fields) {
        Ok(document) => of_document(&document),
        Err(_) => of_text(body),
    };
    let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().filter(|letter| !letter.is_control()).take(LETTERS_MAX).collect();
    if words.is_empty() { words } else { format!(": {words}") }
}

fn of_document(document: &Fields<'_>) -> String {
    let first = document.list("errors").ok().and_then(|all| all.first().copied());
    let inner = first.and_then(|error| error.fields().ok());
    let all = inner.iter().chain([document]);
    let words = all.flat_map(|fields| NAMES.iter().filter_map(|name| fields.text(name).ok()));
    words.into_iter().find(|words| !words.is_empty()).unwrap_or_default()
}

/// HTML pages are for browsers.
fn of_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('<') { String::new() } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_words_in_one_form_or_another() {
        for (body, words) in [
            (
                r#"{"errors":[{"code":"DENIED","message":"key vault access denied","detail":[1]},{"message":"x"}]}"#,
                ": key vault access denied",
            ),
            (r#"{"errors":[{"code":"DENIED","message":""}]}"#, ""),
            (
                r#"{"errors":null,"details":"incorrect username or password"}"#,
                ": incorrect username or password",
            ),
            (
                r#"{"error":"invalid_grant","error_description":"the token has ended"}"#,
                ": the token has ended",
            ),
            (r#"{"error":"invalid_grant"}"#, ": invalid_grant"),
            ("who\n  are\u{7} you\n", ": who are you"),
            ("<html>no</html>", ""),
            ("", ""),
            ("[]", ": []"),
        ] {
            assert_eq!(said(body.as_bytes()), words, "{body}");
        }
        assert_eq!(said("x".repeat(5000).as_bytes()).len(), LETTERS_MAX + 2);
    }
}
