//! Entries of a directory tree, a line each, for a layer of an image or for a directory of the node.
//!
//! ```text
//! dir PATH MODE              file PATH MODE CONTENT     link PATH TARGET        hard PATH TARGET
//! fifo PATH MODE             char PATH MODE MAJOR MINOR owner UID GID           without PATH
//! ```
//! `owner` applies to the following lines. `without` removes a path of the layer below, `hard` is a hard
//! link; both are only for layers.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tests_registry::{Layer, LayerBuilder};

/// One entry.
#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Dir { path: String, mode: u32 },
    File { path: String, mode: u32, content: String },
    Link { path: String, target: String },
    Hard { path: String, target: String },
    Fifo { path: String, mode: u32 },
    Char { path: String, mode: u32, major: u32, minor: u32 },
    Owner { uid: u32, gid: u32 },
    Without { path: String },
}

fn parse(line: &str) -> Result<Entry> {
    let (kind, rest) = line.split_once(' ').context("an entry has a kind and a path")?;
    // A file's content is the rest of the line, including spaces.
    let words: Vec<&str> = rest.splitn(if kind == "file" { 3 } else { 4 }, ' ').collect();
    let path = words[0].trim_start_matches('/').to_owned();
    let octal = |word: &str| u32::from_str_radix(word, 8).with_context(|| format!("the mode {word:?}"));
    let number = |word: &str| word.parse::<u32>().with_context(|| format!("the number {word:?}"));
    Ok(match (kind, &words[1..]) {
        ("dir", [mode]) => Entry::Dir { path, mode: octal(mode)? },
        ("file", [mode]) => Entry::File { path, mode: octal(mode)?, content: String::new() },
        ("file", [mode, content]) => Entry::File { path, mode: octal(mode)?, content: (*content).to_owned() },
        ("link", [target]) => Entry::Link { path, target: (*target).to_owned() },
        ("hard", [target]) => Entry::Hard { path, target: target.trim_start_matches('/').to_owned() },
        ("fifo", [mode]) => Entry::Fifo { path, mode: octal(mode)? },
        ("char", [mode, major, minor]) => {
            Entry::Char { path, mode: octal(mode)?, major: number(major)?, minor: number(minor)? }
        }
        ("owner", [gid]) => Entry::Owner { uid: number(words[0])?, gid: number(gid)? },
        ("without", []) => Entry::Without { path },
        _ => bail!("unknown entry {line:?}"),
    })
}

fn parse_all(lines: &[String]) -> Result<Vec<Entry>> {
    lines.iter().map(|line| parse(line).with_context(|| format!("entry {line:?}"))).collect()
}

/// Makes a layer of the entries.
///
/// # Errors
/// When a line is no entry.
pub(crate) fn layer(lines: &[String]) -> Result<Layer> {
    Ok(parse_all(lines)?.into_iter().fold(Layer::builder(), add).build())
}

fn add(layer: LayerBuilder, entry: Entry) -> LayerBuilder {
    match entry {
        Entry::Dir { path, mode } => layer.dir(&path, mode),
        Entry::File { path, mode, content } => layer.file(&path, mode, content),
        Entry::Link { path, target } => layer.symlink(&path, &target),
        Entry::Hard { path, target } => layer.hard_link(&path, 0o755, &target),
        Entry::Fifo { path, mode } => layer.fifo(&path, mode),
        Entry::Char { path, mode, major, minor } => layer.char_device(&path, mode, major, minor),
        Entry::Owner { uid, gid } => layer.owner(uid.into(), gid.into()),
        Entry::Without { path } => layer.whiteout(&path),
    }
}

/// Makes the entries below an existing directory.
///
/// # Errors
/// If a line is no entry, or one only for layers, or the directory cannot be written.
pub(crate) fn write(lines: &[String], below: &Path) -> Result<()> {
    let mut owner = None;
    for entry in parse_all(lines)? {
        if let Entry::Owner { uid, gid } = entry {
            owner = Some((uid, gid));
            continue;
        }
        let path = write_one(&entry, below)?;
        if let Some((uid, gid)) = owner {
            lchown(&path, Some(uid), Some(gid))?;
        }
        // A change of owner clears bits of the mode.
        if let Entry::Dir { mode, .. } | Entry::File { mode, .. } = entry {
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

fn write_one(entry: &Entry, below: &Path) -> Result<PathBuf> {
    let at = |path: &str| below.join(path);
    Ok(match entry {
        Entry::Dir { path, mode } => {
            DirBuilder::new().recursive(true).mode(*mode).create(at(path))?;
            at(path)
        }
        Entry::File { path, content, .. } => {
            fs::write(at(path), content)?;
            at(path)
        }
        Entry::Link { path, target } => {
            symlink(target, at(path))?;
            at(path)
        }
        Entry::Fifo { path, mode } => {
            mkfifo(&at(path), Mode::from_bits_truncate(*mode))?;
            at(path)
        }
        Entry::Owner { .. } | Entry::Hard { .. } | Entry::Char { .. } | Entry::Without { .. } => {
            bail!("{entry:?} is no file, or for layers of images alone")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_content_keeps_its_spaces() {
        let entry = parse("file /etc/motd 0644 two  words ").unwrap();
        assert_eq!(
            entry,
            Entry::File { path: "etc/motd".into(), mode: 0o644, content: "two  words ".into() }
        );
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        let error = layer(&["dir /a 0755".into(), "dirr /b 0755".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("dirr /b"), "{error:#}");
    }

    #[test]
    fn a_tree_on_the_node_has_modes_links_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let lines = ["dir /a 0700", "file /a/b 0640 text", "link /c a/b", "fifo /d 0600"];
        write(&lines.map(str::to_owned), dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("c")).unwrap(), "text");
        assert_eq!(fs::metadata(dir.path().join("a/b")).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
