//! Tests the operators' pages against this program: it knows their commands, and accepts their
//! configurations.

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;
use tests_pages::{blocks, transcript};

use crate::{Cli, config};

/// Quoted errors beginning with the program's name.
const ERRORS: &[&str] = &["podvisor run has no --…: …", "podvisor does not implement …"];

/// README and the pages of `docs`, by path.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let paths =
        docs.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The program's own commands in a line of shell, without comments. A line still to be completed has none.
fn ours(line: &str) -> Vec<String> {
    let line = line.split(" #").next().filter(|line| !line.ends_with("<TAB>")).unwrap_or_default();
    let commands = line.split(" | ").map(str::trim);
    commands.filter(|command| command.starts_with("podvisor ")).map(str::to_owned).collect()
}

/// The error about the words of a command, if there is one. Quotes are around single words.
fn wrong(command: &str) -> Option<clap::Error> {
    let words = command.split_whitespace().map(|word| word.trim_matches('"'));
    Cli::try_parse_from(words).err()
}

#[test]
fn commands_of_blocks_are_commands_of_the_program() {
    let mut count = 0;
    for (path, page) in pages() {
        for block in blocks(&page) {
            let lines: Vec<&str> = match block.language.as_str() {
                "sh" => block.text.lines().collect(),
                "console" => transcript(&block.text).into_iter().map(|(command, _)| command).collect(),
                _ => Vec::new(),
            };
            for command in lines.into_iter().flat_map(ours) {
                count += 1;
                let error = wrong(&command).map(|error| error.to_string());
                assert!(error.is_none(), "{}:{}: {command}: {error:?}", path.display(), block.line);
            }
        }
    }
    assert!(count > 20, "the blocks are read");
}

#[test]
fn commands_in_sentences_are_commands_of_the_program() {
    let mut count = 0;
    for (path, page) in pages() {
        for (index, line) in page.lines().enumerate() {
            let code = line.split('`').skip(1).step_by(2).filter(|code| !ERRORS.contains(code));
            for command in code.flat_map(ours) {
                count += 1;
                // A sentence may leave arguments out.
                let Some(error) = wrong(&command) else { continue };
                let is_known =
                    !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
                let of_help = command.starts_with("podvisor help ");
                assert!(is_known || of_help, "{}:{}: {command}: {error}", path.display(), index + 1);
            }
        }
    }
    assert!(count > 100, "the sentences are read");
}

/// Configurations for this program on the pages, with their places.
fn configurations() -> Vec<(String, String)> {
    // Other programs' files name their place or begin with a key of theirs.
    let is_ours = |text: &str| !text.contains("containerd/config.toml") && !text.starts_with("server = ");
    let mut found = Vec::new();
    for (path, page) in pages() {
        let ours = blocks(&page).into_iter().filter(|block| block.language == "toml" && is_ours(&block.text));
        found.extend(ours.map(|block| (format!("{}:{}", path.display(), block.line), block.text)));
    }
    assert!(found.len() > 5, "the configurations are read");
    found
}

/// The error about a configuration file, if there is one.
fn refused(file: &Path) -> Option<String> {
    config::load(Some(file)).err().map(|error| error.to_string())
}

#[test]
fn configurations_of_the_pages_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    for (place, text) in configurations() {
        std::fs::write(&file, text).unwrap();
        assert_eq!(refused(&file), None, "{place}");
    }
}

#[test]
fn configurations_of_the_pages_are_accepted_at_the_end_of_the_delivered_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let delivered = include_str!("../../../dist/config.toml");
    for (place, text) in configurations() {
        std::fs::write(&file, format!("{delivered}\n{text}")).unwrap();
        assert_eq!(refused(&file), None, "{place}");
    }
}
