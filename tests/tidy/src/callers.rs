//! Public items of libraries used by product code.
//!
//! The compiler finds unused private items; it assumes external users of a public one. Here all users are
//! known. Only names in product code count: a crate under `tests/`, a crate's `tests/` and `examples/`, and
//! code under `#[cfg(test)]` are not product code. An item counts as used in these ways:
//!
//! - An item of a module: a path in product code outside the item itself (for a type, outside its own `impl`
//!   blocks) ends at it, through imports and re-exports. A re-export is no use.
//! - A function or constant of a type, without a receiver: a path ends at its type, or is `Self::…` in an
//!   `impl` block of a type of the same name, and goes on with its name.
//! - A method: code in a crate with access to it calls a method of the same name, or a path ends with its
//!   name. Two methods of one name hide each other, so some unused items are not found, but no used item is
//!   reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::Crate;
use crate::code::{Code, Definition, Form, Kind, Mention, Target};

/// Items allowed to be uncalled in the product, as beginnings of "file" or "file name", and why.
pub const EXCEPTIONS: &[(&str, &str)] = &[
    ("runtime/cdi/src/fuzz.rs", "entry points of tests/fuzz"),
    ("runtime/cri/src/fuzz.rs", "entry points of tests/fuzz, a workspace of its own"),
    ("runtime/image/src/fuzz.rs", "entry points of tests/fuzz"),
    ("runtime/net/src/fuzz.rs", "entry points of tests/fuzz"),
    ("runtime/nri/src/fuzz.rs", "entry points of tests/fuzz"),
    ("runtime/streaming/src/fuzz/", "entry points of tests/fuzz"),
    ("runtime/traces/src/fuzz.rs", "entry points of tests/fuzz"),
    ("vmm/devices/src/virtio/net/fuzz.rs", "entry points of tests/fuzz/vmm"),
    ("vmm/devices/src/virtio/vsock/fuzz.rs", "entry points of tests/fuzz/vmm"),
    ("runtime/traces/src/recorder.rs", "takes spans in tests of other crates, behind a feature"),
    ("vmm/vm/src/snapshot/", "restoring a VM: starting VMs from a template will call it"),
    ("vmm/vm/src/snapshot/", "save and restore of a VM, which the start from a template will call"),
];

/// The breaches by crate: one line for each public item unused by product code.
#[must_use]
pub fn check(crates: &[Crate], code: &Code) -> BTreeMap<String, Vec<String>> {
    let mut breaches: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let used = Used::collect(code);
    let libraries: BTreeSet<_> =
        code.libraries.values().map(|root| code.modules[*root].file.as_str()).collect();
    let of_product = |name: &str| crates.iter().any(|ours| ours.name == name && is_product(ours));
    for (at, item) in code.definitions.iter().enumerate().filter(|(_, item)| item.public) {
        let module = &code.modules[item.module];
        let in_library = libraries.contains(code.modules[code.root(item.module)].file.as_str());
        let name = item.owner.as_ref().map_or(item.name.clone(), |owner| format!("{owner}::{}", item.name));
        if in_library
            && of_product(&module.krate)
            && !is_excepted(&module.file, &name)
            && !used.has(code, crates, at)
        {
            let line = format!("{}:{}: no product code uses {name}", module.file, item.line);
            breaches.entry(module.krate.clone()).or_default().push(line);
        }
    }
    breaches
}

/// One line for each exception without a matching item.
#[must_use]
pub fn check_exceptions(code: &Code) -> Vec<String> {
    let is_there = |exception: &str| {
        code.modules
            .iter()
            .any(|module| exception.starts_with(&module.file) || module.file.starts_with(exception))
    };
    let stale = EXCEPTIONS.iter().filter(|(exception, _)| !is_there(exception));
    stale
        .map(|(exception, _)| format!("{exception}: an exception of tests/tidy/src/callers.rs for nothing"))
        .collect()
}

/// Returns true if a crate is released.
#[must_use]
pub fn is_product(ours: &Crate) -> bool {
    !ours.dir.starts_with("tests/")
}

fn is_excepted(file: &str, name: &str) -> bool {
    let item = format!("{file} {name}");
    EXCEPTIONS.iter().any(|(exception, _)| item.starts_with(exception))
}

/// All uses in product code.
#[derive(Default)]
struct Used {
    /// Items, by their place in [`Code::definitions`].
    items: BTreeSet<usize>,
    /// Names after a type's, by the type.
    associated: BTreeSet<(usize, String)>,
    /// Names after `Self`, by the name of the type of the surrounding block.
    of_self: BTreeSet<(String, String)>,
    /// Names of called methods, or at the end of a path, and the calling crates.
    methods: BTreeSet<(String, String)>,
}

impl Used {
    fn collect(code: &Code) -> Self {
        let mut used = Self::default();
        for at in 0..code.modules.len() {
            for mention in &code.modules[at].mentions {
                used.note(code, at, mention);
            }
        }
        used
    }

    fn note(&mut self, code: &Code, module: usize, mention: &Mention) {
        let krate = &code.modules[module].krate;
        let Some(last) = mention.path.last() else { return };
        if mention.form == Form::ReExport {
            return;
        }
        if mention.form == Form::Method || mention.path.len() > 1 {
            self.methods.insert((last.clone(), krate.clone()));
        }
        if mention.form == Form::Method {
            return;
        }
        if let [first, name, ..] = &mention.path[..]
            && first == "Self"
            && let Some(within) = &mention.within
        {
            self.of_self.insert((within.clone(), name.clone()));
        }
        let Some(Target::Item(item)) = code.resolve(module, &mention.path) else { return };
        self.associated.insert((item, last.clone()));
        let definition = &code.definitions[item];
        let by_itself = code.modules[definition.module].krate == *krate;
        if !(by_itself && mention.within.as_ref() == Some(&definition.name)) {
            self.items.insert(item);
        }
    }

    fn has(&self, code: &Code, crates: &[Crate], at: usize) -> bool {
        let item = &code.definitions[at];
        let home = &code.modules[item.module].krate;
        let seen_by = |krate: &str| reaches(crates, krate, home);
        let called = || self.methods.iter().any(|(name, krate)| *name == item.name && seen_by(krate));
        match (item.kind, &item.owner) {
            (Kind::Associated, Some(owner)) => {
                self.of_self.contains(&(owner.clone(), item.name.clone()))
                    || self.has_associated(code, item, owner)
            }
            (Kind::Method, _) => called(),
            (Kind::Type | Kind::Value | Kind::Associated, _) => self.items.contains(&at),
        }
    }

    fn has_associated(&self, code: &Code, item: &Definition, owner: &str) -> bool {
        // If a type is not found here (an alias of another crate's), only the name counts.
        match code.resolve(item.module, &[owner.to_owned()]) {
            Some(Target::Item(owner)) => self.associated.contains(&(owner, item.name.clone())),
            _ => self.methods.iter().any(|(name, _)| *name == item.name),
        }
    }
}

/// Returns true if a crate is another one, or depends on it, directly or not.
fn reaches(crates: &[Crate], from: &str, to: &str) -> bool {
    let uses = |name: &str| crates.iter().find(|ours| ours.name == name).map(|ours| &ours.uses);
    from == to || uses(from).is_some_and(|uses| uses.iter().any(|used| reaches(crates, used, to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn found(library: &str, program: &str) -> Vec<String> {
        let ours = |name: &str, root: &str, uses: &[&str]| Crate {
            name: name.into(),
            dir: root.split("/src").next().unwrap().into(),
            roots: vec![root.into()],
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
            ..Crate::default()
        };
        let crates = [
            ours("a-lib", "a/lib/src/lib.rs", &[]),
            ours("prog", "a/prog/src/main.rs", &["a-lib"]),
            ours("tests-e2e", "tests/e2e/src/lib.rs", &["a-lib"]),
        ];
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("a/lib/src/lib.rs", "mod inner; pub use inner::*;"),
            source("a/lib/src/inner.rs", library),
            source("a/prog/src/main.rs", program),
            source("tests/e2e/src/lib.rs", "use a_lib::{only_tests_call, OnlyTests};"),
        ];
        let product: Vec<_> = crates.into_iter().filter(is_product).collect();
        let lines = check(&product, &Code::read(&product, &sources)).remove("a-lib").unwrap_or_default();
        let name = |line: String| line.rsplit(' ').next().unwrap_or_default().to_owned();
        lines.into_iter().map(name).collect()
    }

    #[test]
    fn items_that_nothing_or_only_tests_use_are_found() {
        let library = "pub fn only_tests_call() {} pub struct OnlyTests; pub const LIMIT: u8 = 1; pub fn again() { again() }
            impl OnlyTests { pub fn new() -> OnlyTests { OnlyTests } pub fn size(&self) {} }
            #[cfg(test)] mod tests { fn f() { super::LIMIT; super::again(); super::OnlyTests::new().size() } }";
        let names = ["only_tests_call", "OnlyTests", "LIMIT", "again", "OnlyTests::new", "OnlyTests::size"];
        assert_eq!(found(library, "fn main() {}"), names);
    }

    #[test]
    fn items_that_the_product_uses_in_any_form_are_no_breach() {
        let library = "pub fn called() {} pub struct Held; pub const LIMIT: u8 = 1; pub fn given() -> u8 { 0 }
            pub fn noted() -> bool { true } pub trait Acts { fn act(&self) {} } pub const SHOWN: u8 = 1;
            impl Held { pub fn new() -> Self { Held } pub fn size(&self) {} pub fn other() { Self::third() } pub fn third() {} }
            pub use self::Held as Kept; pub(crate) fn crate_only() {}";
        let program =
            "use a_lib::{Kept, LIMIT, Acts, SHOWN}; #[serde(default = \"a_lib::given\")] struct S { a: Kept }
            fn main() { a_lib::called(); Kept::new().size(); vec![LIMIT].map(a_lib::Held::other); x.act();
            println!(\"{SHOWN}\"); select! { a_lib::noted() => {} } }";
        assert_eq!(found(library, program), Vec::<String>::new());
    }

    #[test]
    fn a_function_with_the_name_of_an_imported_module_hides_nothing_in_it() {
        let library = "pub mod list { pub fn all() {} }";
        let program = "use a_lib::list; fn list() { list::all() }";
        assert_eq!(found(library, program), Vec::<String>::new());
    }

    #[test]
    fn a_function_of_another_type_with_the_same_name_is_no_use() {
        let library = "pub struct One; pub struct Two; impl One { pub fn new() -> Self { One } }
            impl Two { pub fn new() -> Self { Two } }";
        assert_eq!(found(library, "fn main() { a_lib::One::new(); let t: a_lib::Two; }"), ["Two::new"]);
    }
}
