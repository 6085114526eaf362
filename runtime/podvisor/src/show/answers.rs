//! Answers to `inspect` on standard output: a page for each, or one JSON list.

use super::entries::Entries;
use super::{Form, json, out, page};

/// Prints the answers in their order.
///
/// # Errors
/// Standard output takes no more.
pub(crate) fn print(answers: Vec<Entries>, form: Form) -> anyhow::Result<()> {
    let text = match form {
        // A list for any number of answers, so programs need not distinguish.
        Form::Json => json::pretty(&answers.into_iter().map(Entries::into_json).collect::<Vec<_>>())?,
        Form::Text => {
            let pages = answers.iter().map(|entries| page::render(entries.iter()));
            pages.collect::<Vec<_>>().join("\n")
        }
    };
    out::print(&text)
}
