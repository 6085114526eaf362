//! The code's annotation keys are on the operators' page, and those on the page are in the code.
//!
//! A key is a string constant of the form `domain/name`, in a file about annotations. A key with an empty name
//! is the beginning of several. A page has keys in the first column of its tables.

use std::collections::BTreeMap;

use crate::Source;
use crate::markdown::code;

/// The page.
pub const PAGE: &str = "docs/annotations.md";

/// The keys of the code, with a file of each.
#[must_use]
pub fn of_code(sources: &[Source]) -> BTreeMap<&str, &str> {
    let about = |source: &&Source| {
        let text = &source.text;
        source.path.starts_with("runtime/") && (text.contains("annotation") || text.contains("Annotation"))
    };
    sources.iter().filter(about).flat_map(keys).collect()
}

/// The keys of a file, with its path.
fn keys(source: &Source) -> impl Iterator<Item = (&str, &str)> {
    let constants = source.text.lines().filter_map(|line| line.trim_start().split_once(": &str = \""));
    let values = constants.filter_map(|(_, rest)| rest.strip_suffix("\";"));
    values.filter(|value| is_key(value)).map(|key| (key, source.path.as_str()))
}

/// One line for each key missing on one of both sides.
#[must_use]
pub fn check(page: &str, sources: &[Source]) -> Vec<String> {
    let described = of_page(page);
    let mut breaches = Vec::new();
    for (key, path) in of_code(sources) {
        let is_it = |row: &&str| if key.ends_with('/') { row.starts_with(key) } else { *row == key };
        if !described.iter().any(is_it) {
            breaches.push(format!("{PAGE}: add a row for {key:?}, an annotation in {path}"));
        }
    }
    for row in described {
        // Capitals and `*` stand for any text.
        let fixed = row.split(|letter: char| letter.is_ascii_uppercase() || letter == '*').next();
        let fixed = fixed.unwrap_or_default();
        let mut product = sources.iter().filter(|source| source.path.starts_with("runtime/"));
        if fixed.is_empty() || !product.any(|source| source.text.contains(fixed)) {
            breaches.push(format!("{PAGE}: the code has no {row:?}: remove its row, or correct it"));
        }
    }
    breaches
}

/// The pieces of code in the first cells of the page's rows.
fn of_page(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split('|').next()).flat_map(code).collect()
}

/// Returns true for a domain with a dot, a slash, and a name or nothing.
fn is_key(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.') && !domain.starts_with('.') && domain.bytes().chain(name.bytes()).all(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "/// Annotation with a size.\nconst SIZE: &str = \"x.io/size\";\n    const ONE: &str = \"one.x.io/\";\n\
                        const PAGE: &str = \"docs/a.md\";\nconst PATH: &str = \"./a/b\";\nlet old = \"io.old.\";\n";

    fn sources() -> [Source; 2] {
        let label = "const LABEL: &str = \"x.io/label\";\n";
        [("runtime/a.rs", CODE), ("runtime/b.rs", label)]
            .map(|(path, text)| Source { path: path.into(), text: text.into() })
    }

    #[test]
    fn a_page_with_all_keys_passes() {
        let page = "| key | effect |\n|---|---|\n| `x.io/size` | `other.io/x` |\n| `one.x.io/NAME` | text |\n| `io.old.*` | none |\n";
        assert_eq!(check(page, &sources()), Vec::<String>::new());
    }

    #[test]
    fn keys_on_one_side_alone_are_found() {
        assert_eq!(
            check("| `x.io/sizes` | text |\n| `one.x.io/NAME` | text |\n", &sources()),
            [
                "docs/annotations.md: add a row for \"x.io/size\", an annotation in runtime/a.rs",
                "docs/annotations.md: the code has no \"x.io/sizes\": remove its row, or correct it",
            ]
        );
    }
}
