//! Links of the Markdown pages lead somewhere: relative links to existing files and headings, and paths in
//! backticks, beginning in a folder of the repository. Addresses on the web are not checked, and neither is
//! anything in a code block. [`Tree::read`] reads the disk; [`check`] judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;
use walkdir::{DirEntry, WalkDir};

use crate::markdown::{anchors, code, prose, targets};

/// The repository's files, as far as links are concerned.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Markdown pages by path, from the repository's root.
    pub pages: BTreeMap<String, String>,
    /// Paths of all files and directories, from the repository's root.
    pub paths: BTreeSet<String>,
}

impl Tree {
    /// Reads this crate's repository.
    ///
    /// # Errors
    /// If a directory or a page cannot be read.
    pub fn read() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let ours = |entry: &DirEntry| {
            let name = entry.file_name().to_string_lossy();
            name != ".git" && name != "target" && !name.starts_with("target-")
        };
        let mut tree = Tree::default();
        for entry in WalkDir::new(&root).min_depth(1).into_iter().filter_entry(ours) {
            let entry = entry?;
            let path = entry.path().strip_prefix(&root)?.to_string_lossy().into_owned();
            if entry.file_type().is_file() && path.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).with_context(|| path.clone())?;
                tree.pages.insert(path.clone(), text);
            }
            tree.paths.insert(path);
        }
        Ok(tree)
    }
}

/// One line for each link to nowhere.
#[must_use]
pub fn check(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for (page, text) in &tree.pages {
        for (number, line) in prose(text) {
            let links = targets(line).filter_map(|target| broken_link(tree, page, target));
            // A path may be followed by arguments.
            let paths = code(line).filter_map(|code| code.split_whitespace().next());
            let paths = paths.filter_map(|path| broken_path(tree, path));
            breaches.extend(links.chain(paths).map(|what| format!("{page}:{number}: {what}")));
        }
    }
    breaches
}

/// Returns the error in a link. The page of a path from the repository's root is "".
pub(crate) fn broken_link(tree: &Tree, page: &str, target: &str) -> Option<String> {
    let (file, anchor) = destination(page, target)?;
    if !tree.paths.contains(&file) {
        return Some(format!("no file {file} for the link to {target}"));
    }
    let known = tree.pages.get(&file).map(|text| anchors(text)).unwrap_or_default();
    if anchor.is_empty() || known.iter().any(|known| known == anchor) {
        return None;
    }
    let remedy = match nearest(&known, anchor) {
        Some(nearest) => format!("is it #{nearest}?"),
        None => "correct the link".to_owned(),
    };
    Some(format!("{file} has no heading for the link to {target}: {remedy}"))
}

/// The file of a link, from the repository's root, and its anchor there; `None` for addresses on the web.
pub(crate) fn destination<'a>(page: &str, target: &'a str) -> Option<(String, &'a str)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { resolved(page, file) };
    Some((file, anchor))
}

/// The anchor with the most words in common, if there are any.
fn nearest<'a>(known: &'a [String], anchor: &str) -> Option<&'a String> {
    let words: BTreeSet<&str> = anchor.split('-').collect();
    let shared = |other: &String| other.split('-').filter(|word| words.contains(word)).count();
    known.iter().max_by_key(|other| shared(other)).filter(|other| shared(other) > 0)
}

/// Returns the error in a path. Text is only a path if it begins with a folder of the repository.
fn broken_path(tree: &Tree, text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let (folder, rest) = text.split_once('/')?;
    if !text.bytes().all(plain) || folder.is_empty() || !tree.paths.contains(folder) {
        return None;
    }
    let known = rest.is_empty() || tree.paths.contains(text.trim_end_matches('/'));
    (!known).then(|| format!("no file {text}"))
}

/// The target path of a page's link, from the repository's root.
fn resolved(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(page: &str) -> Tree {
        let paths = ["docs", "docs/a.md", "docs/b.md", "runtime", "runtime/net", "runtime/net/cni.rs"];
        Tree {
            pages: [("docs/a.md", page), ("docs/b.md", "# Some `code`, it's here\n")]
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into(),
            paths: paths.map(str::to_owned).into(),
        }
    }

    #[test]
    fn links_and_paths_that_lead_somewhere_pass() {
        let page = "[b](b.md) [h](b.md#some-code-its-here) [r](../runtime/net) [w](https://x.y/z) [s](#top)\n# Top\n\
                    `runtime/net/cni.rs` `runtime/net/` `runtime/` `/etc/x` `other/x` `runtime/<name>` `runtime/net -x`\n\
                    ```\n[x](nowhere.md) `runtime/gone.rs`\n```\n";
        assert_eq!(check(&tree(page)), Vec::<String>::new());
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let page = "a\n[x](c.md) and [y](b.md#no-such)\n`runtime/gone.rs --flag`\n[z](../../docs/c.md)\n[s](#top)\n\
                    [t](b.md#its-code)\n";
        assert_eq!(
            check(&tree(page)),
            [
                "docs/a.md:2: no file docs/c.md for the link to c.md",
                "docs/a.md:2: docs/b.md has no heading for the link to b.md#no-such: correct the link",
                "docs/a.md:3: no file runtime/gone.rs",
                "docs/a.md:4: no file docs/c.md for the link to ../../docs/c.md",
                "docs/a.md:5: docs/a.md has no heading for the link to #top: correct the link",
                "docs/a.md:6: docs/b.md has no heading for the link to b.md#its-code: is it #some-code-its-here?",
            ]
        );
    }
}
