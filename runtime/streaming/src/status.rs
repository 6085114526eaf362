//! The content of a session's error stream: a `metav1.Status` as JSON, or a text in the older protocols.
//! Clients match on both, so neither may change.

use serde_json::{Value, json};

use crate::channels::Outcome;

/// Longest text from a session, in bytes. The rest is cut off.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Encodes the outcome for the client: JSON in the protocols from v4 on, text in earlier ones.
pub(crate) fn encode(outcome: &Outcome, as_json: bool) -> Vec<u8> {
    if as_json { json(outcome) } else { text(outcome) }
}

fn json(outcome: &Outcome) -> Vec<u8> {
    let status = match outcome {
        Outcome::Done | Outcome::Exited(0) => json!({ "metadata": {}, "status": "Success" }),
        Outcome::Exited(code) => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": exit_text(*code),
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Outcome::Failed { text, cause } => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "InternalError",
            "message": format!("Internal error occurred: {}", cut(text)),
            "details": { "causes": [failure_cause(cut(text), *cause)] },
            "code": 500,
        }),
    };
    status.to_string().into_bytes()
}

fn failure_cause(text: &str, cause: Option<&str>) -> Value {
    match cause {
        Some(cause) => json!({ "reason": cause, "message": text }),
        None => json!({ "message": text }),
    }
}

/// The text of a port's error, on the error stream of a forwarded connection.
pub(crate) fn of_forward(port: u16, text: &str) -> String {
    format!("error forwarding port {port}: {}", cut(text))
}

/// Encodes the outcome for the older protocols. It is empty on success.
fn text(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Done | Outcome::Exited(0) => Vec::new(),
        Outcome::Exited(code) => exit_text(*code).into_bytes(),
        Outcome::Failed { text, .. } => cut(text).as_bytes().to_vec(),
    }
}

/// Returns the text, cut between characters if it is too long.
pub(crate) fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    &text[..end]
}

fn exit_text(code: i32) -> String {
    format!("command terminated with non-zero exit code: {code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(outcome: &Outcome) -> Value {
        serde_json::from_slice(&json(outcome)).unwrap()
    }

    #[test]
    fn an_exit_code_is_a_cause_of_its_own() {
        let status = value(&Outcome::Exited(3));
        assert_eq!(status["status"], "Failure");
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0], json!({ "reason": "ExitCode", "message": "3" }));
    }

    #[test]
    fn success_says_so_in_json_and_nothing_in_text() {
        for outcome in [Outcome::Done, Outcome::Exited(0)] {
            assert_eq!(value(&outcome)["status"], "Success");
            assert!(text(&outcome).is_empty());
        }
    }

    #[test]
    fn a_cause_with_a_name_carries_it_for_programs() {
        let text = "no such file".to_owned();
        let status = value(&Outcome::Failed { text, cause: Some("ExecutableNotFound") });
        let expected = json!({ "reason": "ExecutableNotFound", "message": "no such file" });
        assert_eq!(status["details"]["causes"][0], expected);
        assert_eq!(status["reason"], "InternalError");
        let unnamed = value(&Outcome::failed("x"));
        assert_eq!(unnamed["details"]["causes"][0], json!({ "message": "x" }));
    }

    #[test]
    fn a_long_failure_is_cut_at_a_character() {
        let failed = Outcome::failed("é".repeat(TEXT_BYTES_MAX));
        assert!(String::from_utf8(text(&failed)).unwrap().len() <= TEXT_BYTES_MAX);
        assert_eq!(value(&failed)["code"], 500);
    }
}
