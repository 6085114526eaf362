//! A block as a script for bash, with the changes of its row. Pure.

use anyhow::{Context, bail};

use crate::block::{Block, blocks};
use crate::row::Row;

/// A line of output behind each command of a transcript.
pub const END: &str = "\u{1e}";

/// The block of a row.
///
/// # Errors
/// If the page has no such block, or several.
pub fn find(row: &Row, page: &str) -> anyhow::Result<Block> {
    let of_row = |block: &Block| block.heading == row.heading && block.text.starts_with(&row.begins);
    let mut found: Vec<Block> = blocks(page).into_iter().filter(of_row).collect();
    let Row { page, heading, begins, .. } = row;
    match found.len() {
        0 => bail!("no block of {page} below {heading:?} begins with {begins:?}"),
        1 => found.pop().context("one block"),
        count => bail!("{count} blocks of {page} below {heading:?} begin with {begins:?}"),
    }
}

/// The script: the row's lines before, the block with its changes, and the lines behind. A file is written to
/// its place. A transcript has [`END`] behind the output of each command.
///
/// # Errors
/// If the text of a change is not in the block.
pub fn script(row: &Row, block: &Block) -> anyhow::Result<String> {
    let mut text = block.text.clone();
    for change in &row.change {
        if !text.contains(&change.from) {
            bail!("{}:{}: {:?} to be changed is not there", row.page, block.line, change.from);
        }
        text = text.replace(&change.from, &change.to);
    }
    let text = match (block.place(), block.language.as_str()) {
        (Some(place), _) => format!("mkdir -p \"$(dirname {place})\"\ncat >{place} <<'FILE'\n{text}FILE\n"),
        (None, "console") => {
            let commands = transcript(&text).into_iter();
            commands.map(|(command, _)| format!("{command}\nprintf '%s\\n' '{END}'\n")).collect()
        }
        (None, _) => text,
    };
    let [before, after] = [&row.before, &row.after].map(|lines| lines.trim_end());
    // A mark behind the needs: their output is not the block's.
    let mark = if block.language == "console" { format!("printf '%s\\n' '{END}'\n") } else { String::new() };
    Ok(format!("{before}\n{mark}{text}{after}\n"))
}

/// Commands of a transcript behind `$ `, each with its lines of output.
#[must_use]
pub fn transcript(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, output))) => output.push(line),
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Change;

    fn row(begins: &str) -> Row {
        Row { page: "a.md".into(), heading: "H".into(), begins: begins.into(), ..Row::default() }
    }

    #[test]
    fn a_row_means_one_block() {
        let page = "# H\n```sh\nls a\n```\n```sh\nls b\n```\n# Other\n```sh\npwd\n```\n";
        assert_eq!(find(&row("ls b"), page).unwrap().line, 5);
        let refused = |begins: &str| find(&row(begins), page).unwrap_err().to_string();
        assert_eq!(refused("pwd"), "no block of a.md below \"H\" begins with \"pwd\"");
        assert_eq!(refused("ls"), "2 blocks of a.md below \"H\" begin with \"ls\"");
    }

    #[test]
    fn changes_are_made_in_the_block_alone_and_a_missing_text_is_refused() {
        let mut row = row("ls");
        (row.before, row.after) = ("mkdir POD".into(), "rmdir POD\n".into());
        row.change = vec![Change { from: "POD".into(), to: "web".into(), why: "a name".into() }];
        let block =
            Block { language: "sh".into(), line: 7, text: "ls POD # POD\n".into(), ..Block::default() };
        assert_eq!(script(&row, &block).unwrap(), "mkdir POD\nls web # web\nrmdir POD\n");
        row.change[0].from = "IMAGE".into();
        let refused = script(&row, &block).unwrap_err().to_string();
        assert_eq!(refused, "a.md:7: \"IMAGE\" to be changed is not there");
    }

    #[test]
    fn a_transcript_has_its_commands_run_and_a_file_is_written_to_its_place() {
        let text = "$ ls\na  b\n$ pwd\n";
        assert_eq!(transcript(text), [("ls", vec!["a  b"]), ("pwd", Vec::new())]);
        let block = Block { language: "console".into(), text: text.into(), ..Block::default() };
        let mark = format!("printf '%s\\n' '{END}'\n");
        assert_eq!(script(&row(""), &block).unwrap(), format!("\n{mark}ls\n{mark}pwd\n{mark}\n"));
        let block = Block { language: "toml".into(), text: "# /a/b\nc = 1\n".into(), ..Block::default() };
        let written = "\nmkdir -p \"$(dirname /a/b)\"\ncat >/a/b <<'FILE'\n# /a/b\nc = 1\nFILE\n\n";
        assert_eq!(script(&row(""), &block).unwrap(), written);
    }
}
