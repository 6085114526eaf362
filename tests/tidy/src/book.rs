//! The book's contents name each page of the folder `docs` once, and the book has whatever its pages link to:
//! other pages of the contents, and files. `make book` copies linked files, but no folders (`.ci/book`).

use std::collections::BTreeMap;

use crate::links::{Tree, destination};
use crate::markdown::{prose, targets};

/// The contents.
pub const CONTENTS: &str = "docs/SUMMARY.md";

/// The folder with pages for the contents.
const FOLDER: &str = "docs/";

/// One line for each page that is missing in the contents or there again, and for each link out of the book.
#[must_use]
pub fn check(tree: &Tree) -> Vec<String> {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for page in tree.pages.get(CONTENTS).into_iter().flat_map(|text| linked(CONTENTS, text)) {
        *named.entry(page.1).or_default() += 1;
    }
    let mut breaches = Vec::new();
    let of_folder = |page: &&String| page.starts_with(FOLDER) && *page != CONTENTS;
    for page in tree.pages.keys().filter(of_folder).filter(|page| !named.contains_key(*page)) {
        breaches.push(format!("{CONTENTS}: {page} is missing: add a line for it under its theme"));
    }
    for (page, times) in named.iter().filter(|(_, times)| **times > 1) {
        breaches.push(format!("{CONTENTS}: {page} is there {times} times: leave one of them"));
    }
    for (page, text) in tree.pages.iter().filter(|(page, _)| named.contains_key(*page)) {
        for (number, target) in linked(page, text) {
            let is_page = target.ends_with(".md") && target != CONTENTS;
            let what = if is_page && !named.contains_key(&target) {
                format!("the book does not have {target}: add it to {CONTENTS}, or name it without a link")
            } else if is_folder(tree, &target) {
                format!(
                    "the book does not have the folder {target}: link to a file, or name it without a link"
                )
            } else {
                continue;
            };
            breaches.push(format!("{page}:{number}: {what}"));
        }
    }
    breaches
}

/// Paths of a page's links, from the repository's root, with the numbers of their lines.
fn linked<'a>(page: &'a str, text: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
    prose(text).flat_map(move |(number, line)| {
        targets(line).filter_map(move |target| Some((number, destination(page, target)?.0)))
    })
}

fn is_folder(tree: &Tree, path: &str) -> bool {
    let below = format!("{path}/");
    tree.paths.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(contents: &str, page: &str) -> Tree {
        let pages = [(CONTENTS, contents), ("docs/a.md", page), ("docs/b/c.md", "# C\n"), ("README.md", "")];
        let paths = ["README.md", "docs", "docs/a.md", "docs/b", "docs/b/c.md", "dist", "dist/x.yaml"];
        Tree {
            pages: pages.map(|(path, text)| (path.to_owned(), text.to_owned())).into(),
            paths: paths.map(str::to_owned).into(),
        }
    }

    #[test]
    fn a_book_with_all_pages_and_all_they_link_to_passes() {
        let contents = "[A](a.md)\n- [C](b/c.md)\n- [Readme](../README.md)\n";
        let page = "[C](b/c.md#c) [top](#a) [all](SUMMARY.md) [r](../README.md) [x](../dist/x.yaml) [w](https://x.y/z.md)\n";
        assert_eq!(check(&tree(contents, page)), Vec::<String>::new());
    }

    #[test]
    fn pages_that_are_missing_or_there_again_are_found() {
        assert_eq!(
            check(&tree("[A](a.md)\n- [A](a.md)\n", "")),
            [
                "docs/SUMMARY.md: docs/b/c.md is missing: add a line for it under its theme",
                "docs/SUMMARY.md: docs/a.md is there 2 times: leave one of them",
            ]
        );
    }

    #[test]
    fn links_out_of_the_book_are_found() {
        assert_eq!(
            check(&tree("[A](a.md)\n- [C](b/c.md)\n", "a\n[r](../README.md) [d](../dist)\n")),
            [
                "docs/a.md:2: the book does not have README.md: add it to docs/SUMMARY.md, or name it without a link",
                "docs/a.md:2: the book does not have the folder dist: link to a file, or name it without a link",
            ]
        );
    }
}
