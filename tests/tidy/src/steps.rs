//! Steps with an effect outside the daemon's memory pass a fail point (`runtime/fail-points`), so tests can
//! kill, fail or hold the daemon before each of them.
//!
//! A function of the daemon with one of [`STEPS`] in its text names a `Point`, or is under one of
//! [`EXCEPTIONS`]. Tests are skipped.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemFn};

use crate::Source;
use crate::code::only_tests;

/// Texts of a step: changes of files, mounts and namespaces, new processes, commits, calls of a VMM and of an
/// agent.
const STEPS: &[&str] = &[
    "fs::write(",
    "fs::rename",
    "fs::copy",
    "fs::hard_link",
    "fs::remove_",
    "fs::create_dir",
    "File::create",
    ".create(true)",
    ".create_new(true)",
    "tempdir_in(",
    "mkdirat(",
    "mknodat(",
    "unlinkat(",
    "umount2(",
    " unmount(",
    " mount(",
    "move_mount(",
    "unshare(",
    ".spawn()",
    ".commit()",
    ".link.ask(",
    "(context(",
    ".client.wait(",
];

/// Steps without a need for their own point, as beginnings of "file function", and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("runtime/fail-points/", "the points themselves"),
    ("runtime/podvisor/src/run/", "a command of its own, which is no daemon"),
    ("runtime/podvisor/src/cp/", "a command of its own, which is no daemon"),
    ("runtime/podvisor/src/check/", "a command of its own, which is no daemon"),
    ("runtime/podvisor/src/man.rs", "a command of its own, which is no daemon"),
    ("runtime/pod/src/doctor/", "of a command of its own, which is no daemon"),
    ("runtime/node/", "a command of its own, which is no daemon"),
    ("runtime/device-plugin/", "a command of its own, which is no daemon"),
    ("runtime/spec/", "pure: its mounts are plans"),
    ("runtime/nri/src/socket.rs listen", "a socket's file, which the next daemon replaces"),
    ("runtime/nri/src/set/plugins.rs accept", "a socket's file, which the next daemon replaces"),
    ("runtime/nri/src/started.rs start", "a program that ends with the stream to its daemon"),
    ("runtime/net/src/netns.rs make_shared", "behind the point of the folder"),
    ("runtime/net/src/netns.rs create", "a thread's own namespace, until it is mounted behind a point"),
    ("runtime/net/src/netns.rs unnamed", "goes with its descriptor"),
    ("runtime/net/src/plugin.rs spawn", "behind the point of its caller, which waits"),
    ("runtime/pod/src/dirs.rs remove_dir", "behind the points of its callers"),
    ("runtime/pod/src/host/remove_cgroup.rs if_empty", "behind the point of with_processes, or a command's"),
    ("runtime/share/src/mount_namespace.rs within", "a thread's own namespace, which ends with the thread"),
    ("runtime/share/src/container_binds.rs make_point", "behind the points of bind_each"),
    ("runtime/share/src/container_binds.rs detach", "behind the points of unbind_all"),
    ("runtime/share/src/container_binds.rs remove_point", "behind the points of unbind_all"),
    ("runtime/share/src/tree.rs attach", "behind the points of bind_each"),
    ("runtime/share/src/tree.rs clone_of", "the operator's own directory, which stays"),
    ("runtime/share/src/user_namespace.rs", "goes with its process, before the call returns"),
];

/// The file with the list of points.
const POINTS: &str = "runtime/fail-points/src/point.rs";

/// One line for each function of the daemon with a step and without a point, for each unused exception, and
/// for each point never passed.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<String> {
    let functions: Vec<Function> =
        sources.iter().filter(|source| is_daemons(source)).flat_map(functions).collect();
    let stepping: Vec<_> =
        functions.iter().filter_map(|function| Some((function, function.step()?))).collect();
    let unpassed = stepping
        .iter()
        .filter(|(function, _)| {
            !function.names_a_point() && !EXCEPTIONS.iter().any(|(of, _)| function.name.starts_with(of))
        })
        .map(|(function, step)| format!("{}: has {step:?}, and names no fail point", function.name));
    let stale = EXCEPTIONS
        .iter()
        .filter(|(of, _)| !stepping.iter().any(|(function, _)| function.name.starts_with(of)))
        .map(|(of, _)| format!("{of}: an exception of tests/tidy/src/steps.rs for nothing"));
    let idle = points(sources).into_iter().filter_map(|point| {
        let path = format!("Point::{point}");
        let passed = functions.iter().any(|function| mentions(&function.text, &path));
        (!passed).then(|| format!("{POINTS}: {point} is passed nowhere"))
    });
    unpassed.chain(stale).chain(idle).collect()
}

/// Returns true if a file belongs to the daemon's crates, and not only to tests.
fn is_daemons(source: &Source) -> bool {
    let path = &source.path;
    path.starts_with("runtime/")
        && path.contains("/src/")
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
}

/// A function's text, under "file function".
struct Function {
    name: String,
    text: String,
}

impl Function {
    fn step(&self) -> Option<&'static str> {
        STEPS.iter().copied().find(|step| self.text.contains(step))
    }

    fn names_a_point(&self) -> bool {
        self.text.contains("Point::") || self.text.contains("point: Point")
    }
}

/// Returns true if a path is in the text, and not as the beginning of a longer one.
fn mentions(text: &str, path: &str) -> bool {
    text.split(path).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn functions(source: &Source) -> Vec<Function> {
    let Ok(file) = syn::parse_file(&source.text) else { return Vec::new() };
    let mut found = Found { source, functions: Vec::new() };
    found.visit_file(&file);
    found.functions
}

struct Found<'a> {
    source: &'a Source,
    functions: Vec<Function>,
}

impl Found<'_> {
    fn note(&mut self, name: &syn::Ident, span: Span) {
        let (first, last) = (name.span().start().line, span.end().line);
        let lines = self.source.text.lines().skip(first - 1).take(last + 1 - first);
        let text = lines.collect::<Vec<_>>().join("\n");
        self.functions.push(Function { name: format!("{} {name}", self.source.path), text });
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return,
        };
        if !only_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig.ident, function.block.brace_token.span.close());
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.note(&function.sig.ident, function.block.brace_token.span.close());
    }
}

/// The names of the points.
fn points(sources: &[Source]) -> Vec<&str> {
    let list = sources.iter().filter(|source| source.path == POINTS);
    let lines = list.flat_map(|source| source.text.lines());
    lines
        .filter_map(|line| line.trim().split_once(" = \""))
        .filter(|(_, name)| name.ends_with("\","))
        .map(|(point, _)| point)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let sources = [
            Source { path: path.into(), text: text.into() },
            Source { path: POINTS.into(), text: "points! {\n    StoreCommit = \"store.commit\",\n}".into() },
        ];
        let lines = check(&sources).into_iter();
        lines.filter(|line| !line.contains("for nothing") && !line.contains("is passed nowhere")).collect()
    }

    #[test]
    fn a_step_without_a_point_is_found_in_every_form() {
        for (step, text) in [
            ("fs::rename", "fn f() { std::fs::rename(a, b) }"),
            ("fs::create_dir", "impl X { fn f() { blocking(fs::create_dir_all).await } }"),
            (".create(true)", "mod m { fn f() {\n    File::options()\n        .create(true)\n} }"),
            (".spawn()", "fn f() { tokio::join!(command.spawn()) }"),
            ("(context(", "impl X { async fn f(&self) { self.client.exec(context(LONG), &request).await } }"),
        ] {
            let expected = format!("runtime/x/src/y.rs f: has {step:?}, and names no fail point");
            assert_eq!(found("runtime/x/src/y.rs", text), [expected], "{text}");
        }
    }

    #[test]
    fn a_step_behind_a_point_and_one_of_a_test_are_no_breach() {
        for text in [
            "fn f() { pass(Point::StoreCommit)?; transaction.commit() }",
            "async fn f(&self, point: Point) { pass(point); self.link.ask(request).await }",
            "#[cfg(test)] mod tests { fn f() { fs::write(a, b) } }",
            "fn f() { store.commit(batch); tokio::spawn(task); fs::read(a) }",
        ] {
            assert_eq!(found("runtime/x/src/y.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("runtime/x/src/tests/y.rs", "fn f() { fs::write(a, b) }"), Vec::<String>::new());
        assert_eq!(found("vmm/x/src/y.rs", "fn f() { fs::write(a, b) }"), Vec::<String>::new());
    }

    #[test]
    fn a_point_that_nobody_passes_is_found() {
        let list = Source { path: POINTS.into(), text: "    A = \"a.b\",\n    AB = \"a.c\",".into() };
        let caller = Source { path: "runtime/x/src/y.rs".into(), text: "fn f() { pass(Point::AB) }".into() };
        let lines = check(&[list, caller]);
        let idle: Vec<_> = lines.iter().filter(|line| line.ends_with("is passed nowhere")).collect();
        assert_eq!(idle, ["runtime/fail-points/src/point.rs: A is passed nowhere"]);
    }
}
