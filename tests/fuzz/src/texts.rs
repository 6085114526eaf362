//! The bounds on texts of a hostile peer, in the daemon's errors and answers.

use std::error::Error;

/// Most characters of a peer's text in an error, and room for the daemon's own words.
pub const TEXT_CHARS_MAX: usize = 4096 + 256;

/// Fails if an error or one of its causes is long or has control characters.
pub fn check_error(error: &dyn Error) {
    let mut cause = Some(error);
    while let Some(error) = cause {
        check_text(&error.to_string(), TEXT_CHARS_MAX);
        cause = error.source();
    }
}

/// Fails if a text is long or has control characters.
pub fn check_text(text: &str, chars_max: usize) {
    assert!(text.chars().count() <= chars_max, "a text of {} characters", text.chars().count());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
