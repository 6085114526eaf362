//! Error texts quoted on the operators' pages are texts of the code. A page quotes in the first columns of
//! its tables, as `text`, with `…` for varying parts; every longer piece between must be in some Rust file.

use crate::Source;

/// Pages with quoted texts, and the quoting columns of their tables.
pub const PAGES: &[(&str, &[usize])] = &[("docs/troubleshooting.md", &[0]), ("docs/output.md", &[2])];

/// Scripts with texts for operators, too.
pub const SCRIPTS: &[&str] = &["dist/debian/preinst", "dist/debian/postrm", "dist/debian/prerm"];

/// Texts of other programs and of the kernel.
const OF_OTHERS: &[&str] = &[
    "Connection refused",
    "Killed process",
    "Memory cgroup out of memory",
    "No space left on device",
    "No such file or directory",
    "TOML parse error at line",
];

/// Shorter pieces do not identify their source.
const BYTES_MIN: usize = 14;

/// One line for each quoted text of a page missing in the sources.
#[must_use]
pub fn check(page: &str, columns: &[usize], text: &str, sources: &[Source]) -> Vec<String> {
    let code: Vec<String> = sources.iter().map(|source| joined(&source.text)).collect();
    let mut breaches = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let quoting = columns.iter().filter_map(|column| cells.get(*column));
        for piece in quoting.flat_map(|cell| pieces(cell)) {
            let known = OF_OTHERS.contains(&piece) || code.iter().any(|text| text.contains(piece));
            if !known {
                breaches.push(format!("{page}:{}: no error text has {piece:?}", index + 1));
            }
        }
    }
    breaches
}

/// The constant parts of a cell's quoted texts.
fn pieces(cell: &str) -> impl Iterator<Item = &str> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let parts = quoted.flat_map(|text| text.split(['…', '"', '(', ')'])).flat_map(|text| text.split(": "));
    let parts = parts.flat_map(|text| text.split(|letter: char| letter.is_ascii_digit()));
    parts
        .map(|part| part.trim_matches([' ', ':', ';', ',', '.']))
        .filter(|part| part.len() >= BYTES_MIN && part.contains(' '))
}

/// The text, with multi-line strings of the code in one piece.
pub(crate) fn joined(code: &str) -> String {
    let mut parts = code.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_the_code_does_not_have_is_found() {
        let text =
            "#[error(\"cannot reach {name:?}: the network \\\n         is down, and {count} hosts wait\")]";
        let sources = [Source { path: "x.rs".into(), text: text.into() }];
        let page = "`no error of ours`\n| `cannot reach \"…\": the network is down, and 5 hosts wait` | a |\n\
                    | x | `second column, not looked at` |\n| `the network is gone: Connection refused` | b |\n";
        assert_eq!(
            check("docs/a.md", &[0], page, &sources),
            ["docs/a.md:4: no error text has \"the network is gone\""]
        );
    }
}
