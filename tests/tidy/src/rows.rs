//! Each error of the daemon has a row on the operators' pages. An error is the text of an `#[error("…")]` of
//! the runtime; a row quotes it in one of the quoting columns, with anything for its varying parts.

use crate::Source;
use crate::quotes::joined;

/// Errors never shown alone to an operator, as a file's path or a path and a text, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "runtime/cri/src/serve.rs serving CRI",
        "the listener's own failure follows, and systemd starts the daemon again",
    ),
    ("runtime/erofs/", "what is wrong with an entry of a layer: stands after `entry`, which has a row"),
    ("runtime/guest/src/error.rs the request of", "a fault of ours, which nothing outside can cause"),
    ("runtime/pod/src/backend/disks.rs cannot open", "the cause follows"),
    ("runtime/podvisor/src/show/out.rs the reader has closed", "ends a command, which prints nothing then"),
    ("runtime/share/src/error.rs nobody waits", "its caller has given up, so nobody gets it"),
    (
        "runtime/spec/src/exit_reason.rs",
        "a reason of another runtime, which a command takes for none of ours",
    ),
    ("runtime/streaming/src/error.rs no random bytes", "the kernel gives them always"),
    ("runtime/streaming/src/spdy/", "a client's fault in its protocol, which the log has for developers"),
    ("runtime/vm/src/error.rs cannot bind", "logged, and the pod goes on"),
    ("runtime/vm/src/error.rs cannot set the OOM", "logged, and the pod goes on"),
];

/// Shorter parts are in too many texts.
const BYTES_MIN: usize = 3;

/// The beginning of a part stands for it from this length on.
const BEGUN_BYTES_MIN: usize = 20;

/// A message without a part of this length has no text of its own.
const DISTINCT_BYTES_MIN: usize = 6;

/// One line for each error of the runtime without a row on these pages, in their quoting columns; and for
/// each unused exception.
#[must_use]
pub fn check(pages: &[(&str, &[usize])], sources: &[Source]) -> Vec<String> {
    check_but(EXCEPTIONS, pages, sources)
}

fn check_but(exceptions: &[(&str, &str)], pages: &[(&str, &[usize])], sources: &[Source]) -> Vec<String> {
    let quotes: Vec<&str> = pages.iter().flat_map(|(page, columns)| quoted(page, columns)).collect();
    let mut used = vec![false; exceptions.len()];
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("runtime/")) {
        for message in messages(&joined(&source.text)) {
            let parts = parts(&message);
            let distinct = parts.iter().any(|part| part.len() >= DISTINCT_BYTES_MIN);
            if !distinct || quotes.iter().any(|quote| has_in_order(quote, &parts)) {
                continue;
            }
            let named = format!("{} {message}", source.path);
            match exceptions.iter().position(|(beginning, _)| named.starts_with(beginning)) {
                Some(at) => used[at] = true,
                None => breaches.push(format!("{}: no page has a row for {message:?}", source.path)),
            }
        }
    }
    let idle = exceptions.iter().zip(used).filter(|(_, used)| !used);
    breaches.extend(idle.map(|((beginning, _), _)| format!("{beginning}: no exception is needed")));
    breaches
}

/// The texts in backticks of these columns.
fn quoted<'a>(page: &'a str, columns: &'a [usize]) -> impl Iterator<Item = &'a str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        columns.iter().filter_map(move |column| cells.get(*column).copied()).collect::<Vec<_>>()
    });
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// The messages of `#[error("…")]`, as they are in the code.
fn messages(code: &str) -> Vec<String> {
    let attributes = code.split("#[error(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let message = |rest: &str| {
        let mut message = String::new();
        let mut letters = rest.chars();
        while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
            message.extend(if letter == '\\' { letters.next() } else { Some(letter) });
        }
        message
    };
    attributes.map(message).collect()
}

/// The constant parts of a message.
fn parts(message: &str) -> Vec<&str> {
    let constant = message.split('{').enumerate().map(|(at, piece)| match piece.split_once('}') {
        Some((_, rest)) if at > 0 => rest,
        _ => piece,
    });
    constant.map(str::trim).filter(|part| part.len() >= BYTES_MIN).collect()
}

/// Returns true if a quote has these parts one after the other. If a quote ends with `…`, it may only have
/// the beginning of a long one.
fn has_in_order(quote: &str, parts: &[&str]) -> bool {
    let begun = quote.strip_suffix('…').map(|quote| quote.rsplit('…').next().unwrap_or(quote));
    let begun = begun
        .map(|begun| begun.trim_matches([' ', ':', ';', ',']))
        .filter(|begun| begun.len() >= BEGUN_BYTES_MIN);
    let mut rest = quote;
    parts.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => begun.is_some_and(|begun| part.contains(begun)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[error(\"registry {registry} has no {what}\")]\n#[error(\n    \"the disk of \\\"{0}\\\" is \\\n     full\"\n)]\n\
                        #[error(\"{0}\")]\n#[error(transparent)]\n#[error(\"cannot {action} {}\", .path.display())]";

    #[test]
    fn a_row_may_quote_the_beginning_of_a_long_error() {
        let parts = ["the file is on a disk that does not answer; try again", "times"];
        for (quote, has) in [
            ("… : the file is on a disk that does not answer; …", true),
            ("the file is on …", false),
            ("the file is on a disk that does not answer", false),
            ("the file is on a disk that does not answer; try again 3 times", true),
        ] {
            let found = has_in_order(quote, &parts[..if quote.ends_with('…') { 1 } else { 2 }]);
            assert_eq!(found, has, "{quote}");
        }
    }

    #[test]
    fn an_error_without_a_row_is_found() {
        let sources = [Source { path: "runtime/x.rs".into(), text: CODE.into() }];
        let page = "| `registry … has no …` | `the disk of \"a\" is full` |\n`cannot open the file`\n";
        let found = check_but(&[], &[(page, &[0])], &sources);
        let missing = |text: &str| format!("runtime/x.rs: no page has a row for {text:?}");
        assert_eq!(found, [missing("the disk of \"{0}\" is full"), missing("cannot {action} {}")]);
        let both: &[usize] = &[0, 1];
        let excepted = [("runtime/x.rs cannot", "of this test"), ("runtime/y.rs", "of nothing")];
        assert_eq!(check_but(&excepted, &[(page, both)], &sources), ["runtime/y.rs: no exception is needed"]);
    }
}
