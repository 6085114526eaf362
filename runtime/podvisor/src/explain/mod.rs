//! `podvisor explain`: finds an error's text on the page of known errors, and prints its meaning and the
//! remedy. The page is part of the program, so no daemon, node or network is needed.
//!
//! `page` reads the page's tables, `pattern` compares a text with a quoted error.

mod page;
mod pattern;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::show::{escape, out};

/// The page.
const PAGE: &str = include_str!("../../../../docs/troubleshooting.md");

/// Most of standard input that is searched, in bytes: its end, where a log has the newest lines.
const INPUT_BYTES_MAX: usize = 4 << 20;

/// Most errors in one answer.
const FOUND_MAX: usize = 10;

/// Arguments of `podvisor explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An error, or a line of a log or an event with one. Without it, standard input is searched line by
    /// line.
    text: Vec<String>,
}

/// Prints the known errors of the text.
pub(crate) fn explain(args: &Args) -> anyhow::Result<ExitCode> {
    let text = if args.text.is_empty() { read_input()? } else { args.text.join(" ") };
    let found = find(PAGE, &text);
    if found.rows.is_empty() {
        bail!(
            "no known error in this text; docs/troubleshooting.md has them all by what does not work, and the words after \
             the last colon are often the kernel's or another program's"
        );
    }
    out::print(&print(&found))?;
    Ok(ExitCode::SUCCESS)
}

fn read_input() -> anyhow::Result<String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        bail!("name an error, or pipe a log: journalctl -u podvisor | podvisor explain");
    }
    let bytes = tail(&mut input.lock(), INPUT_BYTES_MAX).context("reading standard input")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last bytes of the input, at most `bytes_max`.
fn tail(input: &mut impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while input.by_ref().take(bytes_max as u64).read_to_end(&mut bytes)? > 0 {
        bytes.drain(..bytes.len().saturating_sub(bytes_max));
    }
    Ok(bytes)
}

/// Known errors of a text.
#[derive(Debug)]
struct Found<'a> {
    /// The page's rows, in the order of the text.
    rows: Vec<page::Row<'a>>,
    /// The number of rows left out: those of the oldest lines.
    left_out: usize,
}

/// Finds the page's rows with an error of the text. The last lines count first: a log's newest are there.
fn find<'a>(page: &'a str, text: &str) -> Found<'a> {
    let rows = page::rows(page);
    let mut seen = BTreeSet::new();
    let (mut by_line, mut room, mut left_out) = (Vec::new(), FOUND_MAX, 0);
    for line in text.lines().rev() {
        let line = pattern::plain(line);
        let mut hits: Vec<_> = rows
            .iter()
            .enumerate()
            .filter_map(|(number, row)| {
                row.errors()
                    .filter_map(|error| pattern::place(error, &line))
                    .min()
                    .map(|place| (place, number))
            })
            .collect();
        hits.sort_unstable();
        let new = hits.into_iter().filter(|(_, number)| seen.insert(*number)).map(|(_, number)| rows[number]);
        let mut new: Vec<page::Row<'a>> = new.collect();
        left_out += new.len().saturating_sub(room);
        new.truncate(room);
        room -= new.len();
        by_line.push(new);
    }
    Found { rows: by_line.into_iter().rev().flatten().collect(), left_out }
}

fn print(found: &Found<'_>) -> String {
    let mut text = String::new();
    for (number, row) in found.rows.iter().enumerate() {
        let gap = if number == 0 { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{}", row.section);
        let _ = writeln!(text, "  error:    {}", page::plain(row.quoted));
        let _ = writeln!(text, "  meaning:  {}", page::plain(row.meaning));
        if let Some(remedy) = row.remedy {
            let _ = writeln!(text, "  remedy:   {}", page::plain(remedy));
        }
    }
    if found.left_out > 0 {
        let _ = writeln!(text, "\nolder known errors in this text: {}; name one of them", found.left_out);
    }
    escape::lines(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "# Page\n\n## A pod does not start\n\n| text | meaning | what to do |\n|---|---|---|\n\
        | `cannot reach …: the network is down` | no network | see [networks](networks.md#down) |\n\
        | `the disk is full`, `no space on …` | it is full | free space |\n\
        ## Figures\n\n| what you see | meaning |\n|---|---|\n| log: `a client cannot be accepted` | none left |\n";

    #[test]
    fn the_end_of_a_long_input_counts() {
        for (input, expected) in [("", ""), ("abc", "abc"), ("abcdefgh", "efgh"), ("abcdefghi", "fghi")] {
            assert_eq!(tail(&mut input.as_bytes(), 4).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn an_error_is_found_with_its_section_meaning_and_remedy() {
        let event =
            "Warning FailedCreatePodSandBox cannot reach 10.0.0.1:  the network is down: no space on /var";
        assert_eq!(
            print(&find(SMALL, event)),
            "A pod does not start\n  error:    `cannot reach …: the network is down`\n  meaning:  no network\n  \
             remedy:   see networks (networks.md#down)\n\nA pod does not start\n  error:    `the disk is full`, \
             `no space on …`\n  meaning:  it is full\n  remedy:   free space\n"
        );
        assert_eq!(
            print(&find(SMALL, "x\nWARN a client cannot be accepted\nERROR a client cannot be accepted")),
            "Figures\n  error:    log: `a client cannot be accepted`\n  meaning:  none left\n"
        );
        assert!(find(SMALL, "the network is down").rows.is_empty());
    }

    #[test]
    fn each_row_of_the_page_is_found_by_one_of_its_errors() {
        let rows = page::rows(PAGE);
        assert!(rows.len() > 200, "{} rows", rows.len());
        // Names of system calls are in too many texts.
        let too_short = |row: &&page::Row<'_>| row.quoted.contains("`fsync`");
        let is_found = |error: &str| !find(PAGE, &error.replace('…', "x")).rows.is_empty();
        let unknown: Vec<_> =
            rows.iter().filter(|row| !too_short(row) && !row.errors().any(is_found)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn the_newest_errors_of_a_log_are_explained() {
        const NEWEST: &str = "the kubelet's connection cannot be accepted";
        let rows = page::rows(PAGE);
        let errors: Vec<String> =
            rows.iter().flat_map(page::Row::errors).map(|error| error.replace('…', "x")).collect();
        let log = format!("{}\nERROR {NEWEST}\n", errors.join("\n"));
        let quotes = |row: &page::Row<'_>| row.quoted.contains(NEWEST);
        let found = find(PAGE, &log);
        assert!(found.rows.last().is_some_and(quotes), "the last line is one of ten");
        assert_eq!(found.rows.len(), FOUND_MAX);
        let end = format!("older known errors in this text: {}; name one of them\n", found.left_out);
        assert!(found.left_out > 100 && print(&found).ends_with(&end), "{end}");
    }
}
