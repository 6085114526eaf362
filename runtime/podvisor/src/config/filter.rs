//! Filters of the log, in the syntax of tracing-subscriber's `EnvFilter`. This syntax takes every word for
//! the name of a module, so a mistyped level would hide the whole log. So the file's filters are checked here
//! more strictly.

use tracing_subscriber::EnvFilter;

/// Names of levels.
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Longest filter, in bytes. Each part of it is compared with each log statement of the program.
const BYTES_MAX: usize = 4096;

/// Parses a filter.
///
/// # Errors
/// The text is too long or an invalid filter; for people.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("the filter is longer than {BYTES_MAX} bytes"));
    }
    EnvFilter::try_new(text).map_err(|error| format!("{text:?} is no filter: {error}"))
}

/// Checks a filter of the file: parts are separated by commas, and each is a level or `module=level`.
///
/// # Errors
/// As [`parse`], and a word other than a level.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text)?;
    // Fields of spans may have commas in their values.
    if text.contains('[') {
        return Ok(());
    }
    let is_level = |part: &str| LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
    match text.split(',').map(str::trim).find(|part| !part.contains('=') && !is_level(part)) {
        Some(wrong) => Err(format!("{wrong:?} is neither a level ({}) nor module=level", LEVELS.join(", "))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_for_all_and_for_modules_are_taken() {
        for text in [
            "info",
            "WARN",
            "off",
            "info,runtime_pod=debug",
            "runtime_net::cni=trace, warn",
            "[cri{rpc=Status}]=trace",
        ] {
            check(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        }
    }

    #[test]
    fn a_mistyped_level_is_refused_by_its_word() {
        let long = "a=info,".repeat(BYTES_MAX);
        for (text, word) in [
            ("inof", "\"inof\""),
            ("", "\"\""),
            ("info,", "\"\""),
            ("runtime_pod=loud", "is no filter"),
            ("runtime_pod", "\"runtime_pod\""),
            (&long, "longer than"),
        ] {
            let why = check(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
