//! The modules of a crate use each other in one direction.
//!
//! A module is a file here: inline modules belong to their file, and a folder's own module is its `mod.rs`.
//! File A uses file B if code of A has a path (in a `use`, a type, an expression, a macro's tokens) ending at
//! an item defined in B. So:
//!
//! - Imports and re-exports are followed to the file of the definition: `super::X` uses the child with the
//!   definition of `X` if the parent only re-exports it.
//! - Declaring a module, re-exporting its items, or importing a module as such uses nothing.
//! - Code under `#[cfg(test)]` does not count, nor do files only declared by such code.
//! - Methods are not followed, because this needs types: `impl super::Driver` uses the parent, but a call of
//!   the method from the parent uses nothing.
//!
//! Files reaching each other this way are reported together, with one circle through them as an example.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::code::{Code, Form, Target};

/// Files of one crate, all reaching each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The crate.
    pub krate: String,
    /// The files.
    pub files: BTreeSet<String>,
    /// One shortest circle among them, as lines "a uses X of b".
    pub example: Vec<String>,
}

impl Cycle {
    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { krate, files, example } = self;
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let count = files.len();
        format!("{krate}: {count} files use each other: {}; as in: {}", files.join(", "), example.join("; "))
    }
}

/// The lines of all cycles, by crate.
#[must_use]
pub fn check(code: &Code) -> BTreeMap<String, Vec<String>> {
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cycle in cycles(code) {
        lines.entry(cycle.krate.clone()).or_default().push(cycle.line());
    }
    lines
}

/// From a file to its used files, each with the name of one used item.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// All cycles, by crate.
#[must_use]
pub fn cycles(code: &Code) -> Vec<Cycle> {
    let mut crates: BTreeMap<&str, Edges> = BTreeMap::new();
    for (at, module) in code.modules.iter().enumerate() {
        let edges = crates.entry(&module.krate).or_default();
        let named = module.mentions.iter().filter(|m| matches!(m.form, Form::Path | Form::Import));
        for mention in named {
            let Some(Target::Item(item)) = code.resolve(at, &mention.path) else { continue };
            let used = &code.definitions[item];
            let defining = &code.modules[used.module];
            if defining.krate == module.krate && defining.file != module.file {
                let from = edges.entry(module.file.clone()).or_default();
                from.entry(defining.file.clone()).or_insert_with(|| used.name.clone());
            }
        }
    }
    crates.iter().flat_map(|(krate, edges)| circles(krate, edges)).collect()
}

fn circles(krate: &str, edges: &Edges) -> Vec<Cycle> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (file.as_str(), reached(file, edges))).collect();
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for (file, all) in &reach {
        if !all.contains(file) || seen.contains(file) {
            continue;
        }
        let back = |other: &&&str| reach.get(**other).is_some_and(|theirs| theirs.contains(file));
        let together: BTreeSet<_> = all.iter().filter(back).copied().collect();
        let example = shortest(&together, edges);
        cycles.push(Cycle {
            krate: krate.to_owned(),
            files: together.iter().map(|file| (*file).to_owned()).collect(),
            example,
        });
        seen.extend(together);
    }
    cycles
}

fn reached<'a>(from: &str, edges: &'a Edges) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<_> = edges.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(next) = open.pop() {
        if seen.insert(next.as_str()) {
            open.extend(edges.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    seen
}

/// The shortest circle among files all reaching each other.
fn shortest(files: &BTreeSet<&str>, edges: &Edges) -> Vec<String> {
    let circles = files.iter().filter_map(|start| {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut open = VecDeque::from([*start]);
        while let Some(file) = open.pop_front() {
            for next in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
                if !before.contains_key(next.as_str()) {
                    before.insert(next, file);
                    open.push_back(next);
                }
            }
        }
        let mut circle = vec![*start];
        loop {
            let last = before.get(circle.last()?)?;
            circle.push(last);
            if last == start {
                break;
            }
        }
        circle.reverse();
        Some(circle)
    });
    let circle = circles.min_by_key(Vec::len).unwrap_or_default();
    let steps =
        circle.windows(2).map(|step| format!("{} uses {} of {}", step[0], edges[step[0]][step[1]], step[1]));
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crate, Source};

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let ours = Crate { name: "a-b".into(), roots: vec!["a/b/src/lib.rs".into()], ..Crate::default() };
        let source =
            |(path, text): &(&str, &str)| Source { path: format!("a/b/src/{path}"), text: (*text).into() };
        let sources: Vec<_> = files.iter().map(source).collect();
        let cycles = cycles(&Code::read(&[ours], &sources));
        let names =
            |cycle: Cycle| cycle.files.iter().map(|file| file["a/b/src/".len()..].to_owned()).collect();
        cycles.into_iter().map(names).collect()
    }

    #[test]
    fn files_that_use_each_other_are_found_by_every_kind_of_path() {
        for (one, two) in [
            ("use crate::two::B; pub struct A;", "use crate::one::A; pub struct B;"),
            ("pub struct A(super::two::B);", "pub struct B; fn f() { crate::one::A; }"),
            ("use super::two; pub fn f() { two::g() }", "pub fn g() { crate::one::f() }"),
            ("pub fn f() { println!(\"{}\", crate::two::g()) }", "pub fn g() { super::one::f() }"),
            ("use super::two::*; pub fn f() { g() }", "pub fn g() { super::one::f() }"),
            ("pub fn f() { use crate::two::g; g() }", "pub fn g() { crate::f() }"),
        ] {
            let root = "mod one; mod two; pub use one::f; pub use self::two as second;";
            assert_eq!(
                found(&[("lib.rs", root), ("one.rs", one), ("two.rs", two)]),
                [["one.rs", "two.rs"]],
                "{one}"
            );
        }
    }

    #[test]
    fn a_circle_through_many_files_is_one_and_has_an_example() {
        let ours = Crate { name: "c".into(), roots: vec!["c/lib.rs".into()], ..Crate::default() };
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("c/lib.rs", "mod x; mod y; mod z; mod free;"),
            source("c/x.rs", "pub struct X(crate::y::Y);"),
            source("c/y.rs", "pub struct Y(crate::z::Z);"),
            source("c/z.rs", "pub struct Z(Vec<crate::x::X>, crate::free::F);"),
            source("c/free.rs", "pub struct F;"),
        ];
        let lines = check(&Code::read(&[ours], &sources));
        let expected = "c: 3 files use each other: c/x.rs, c/y.rs, c/z.rs; \
                        as in: c/x.rs uses Y of c/y.rs; c/y.rs uses Z of c/z.rs; c/z.rs uses X of c/x.rs";
        assert_eq!(lines["c"], [expected]);
    }

    #[test]
    fn a_parent_that_declares_and_re_exports_is_in_no_cycle() {
        let files = [
            ("lib.rs", "mod room;"),
            ("room/mod.rs", "mod door; mod key; pub use door::Door; pub use key::Key;"),
            ("room/door.rs", "use super::Key; pub struct Door(Key);"),
            ("room/key.rs", "pub struct Key;"),
        ];
        assert_eq!(found(&files), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_parent_that_uses_its_child_and_is_used_by_it_is_in_a_cycle() {
        let files = [
            ("lib.rs", "mod room;"),
            ("room/mod.rs", "mod door; pub use door::Door; pub struct Room(Door);"),
            ("room/door.rs", "pub struct Door; impl super::Room { fn enter(&self) {} }"),
        ];
        assert_eq!(found(&files), [["room/door.rs", "room/mod.rs"]]);
    }

    #[test]
    fn what_only_tests_use_is_no_cycle() {
        let files = [
            ("lib.rs", "mod one; mod two; #[cfg(test)] mod world;"),
            ("one.rs", "pub struct A; #[cfg(test)] mod tests { use crate::two::B; fn f() -> B { B } }"),
            ("two.rs", "pub struct B(crate::one::A);"),
            ("world.rs", "use crate::one::A; pub struct W(A);"),
        ];
        assert_eq!(found(&files), Vec::<Vec<String>>::new());
    }
}
