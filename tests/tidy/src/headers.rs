//! Every Rust file begins with a comment on its purpose.

use crate::Source;

/// One line for each file without a meaningful `//!` comment at its beginning.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<String> {
    let speaks = |source: &&Source| {
        let first = source.text.lines().next().unwrap_or_default();
        first.strip_prefix("//! ").is_some_and(|words| !words.trim().is_empty())
    };
    let silent = sources.iter().filter(|source| !speaks(source));
    silent.map(|source| format!("{}: its first line must be a //! header", source.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_header_are_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let found = check(&[
            source("good.rs", "//! Owns good.\n"),
            source("late.rs", "\n//! Too late.\n"),
            source("plain.rs", "// A comment.\n"),
            source("mute.rs", "//! \n"),
            source("empty.rs", ""),
        ]);
        let named: Vec<_> = found.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(named, ["late.rs", "plain.rs", "mute.rs", "empty.rs"]);
    }
}
