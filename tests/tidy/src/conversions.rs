//! Conversions of a container on its way between the kubelet and the guest: to look at, not to fail on.
//!
//! A conversion is a function taking one noun for a whole container (as a parameter or as `self`) and
//! returning another, or filling in another's struct. The nouns are types of these names: [`NOUNS`]. Nouns of
//! the wire count by their module as well (`v1::ContainerStatus` is none of ours). It reads `runtime/` and
//! `agent/`, without tests.

use std::collections::BTreeSet;

use syn::{
    Block, ExprStruct, FnArg, ImplItem, ImplItemFn, ItemFn, ItemImpl, ItemMod, Path, ReturnType, Signature,
    visit::{self, Visit},
};

use crate::Source;
use crate::code::only_tests;

/// Types for a whole container in some layer.
pub const NOUNS: &[&str] = &[
    // Of the CRI, by `v1`, and ours: requested, resolved, stored and published.
    "Container",
    "ContainerConfig",
    "ContainerSpec",
    "ContainerPlan",
    "ContainerRecord",
    "ContainerStatus",
    "ContainerView",
    "ContainerEntry",
    "ContainerHandle",
    "Resolved",
    // To the agent, and in it.
    "CreateContainerRequest",
    "GuestParts",
    "Spec",
];

/// One line for each conversion, in the order of files.
#[must_use]
pub fn list(sources: &[Source]) -> Vec<String> {
    let mut found = Functions { path: "", owner: None, lines: Vec::new() };
    let ours = |path: &str| path.starts_with("runtime/") || path.starts_with("agent/");
    let of_tests = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    for source in sources.iter().filter(|source| ours(&source.path) && !of_tests(&source.path)) {
        if let Ok(file) = syn::parse_file(&source.text) {
            found.path = &source.path;
            found.visit_file(&file);
        }
    }
    found.lines
}

struct Functions<'a> {
    path: &'a str,
    /// The noun of the current `impl` block.
    owner: Option<String>,
    lines: Vec<String>,
}

impl Functions<'_> {
    fn note(&mut self, signature: &Signature, body: &Block) {
        let mut taken = Nouns { own: self.owner.clone(), all: BTreeSet::new() };
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(_) => taken.all.extend(self.owner.clone()),
                FnArg::Typed(typed) => taken.visit_type(&typed.ty),
            }
        }
        let mut made = Nouns { own: self.owner.clone(), all: BTreeSet::new() };
        if let ReturnType::Type(_, typ) = &signature.output {
            made.visit_type(typ);
        }
        Literals(&mut made).visit_block(body);
        let (from, to): (Vec<_>, Vec<_>) =
            (taken.all.iter().collect(), made.all.difference(&taken.all).collect());
        if !from.is_empty() && !to.is_empty() {
            let names =
                |all: &[&String]| all.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" + ");
            let line = signature.ident.span().start().line;
            self.lines.push(format!(
                "{}:{line} {}: {} → {}",
                self.path,
                signature.ident,
                names(&from),
                names(&to)
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !only_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !only_tests(&function.attrs) {
            self.note(&function.sig, &function.block);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let mut owner = Nouns { own: None, all: BTreeSet::new() };
        if let syn::Type::Path(path) = &*block.self_ty {
            owner.all.extend(noun(&path.path));
        }
        self.owner = owner.all.pop_first();
        for item in &block.items {
            if let ImplItem::Fn(function) = item {
                self.visit_impl_item_fn(function);
            }
        }
        self.owner = None;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !only_tests(&function.attrs) {
            self.note(&function.sig, &function.block);
        }
    }
}

/// The nouns in types.
struct Nouns {
    /// The noun behind `Self`.
    own: Option<String>,
    all: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Nouns {
    fn visit_path(&mut self, path: &'ast Path) {
        if path.is_ident("Self") {
            self.all.extend(self.own.clone());
        }
        self.all.extend(noun(path));
        visit::visit_path(self, path);
    }
}

/// The nouns filled in by a body.
struct Literals<'a>(&'a mut Nouns);

impl<'ast> Visit<'ast> for Literals<'_> {
    fn visit_expr_struct(&mut self, literal: &'ast ExprStruct) {
        if literal.path.is_ident("Self") {
            self.0.all.extend(self.0.own.clone());
        }
        self.0.all.extend(noun(&literal.path));
        visit::visit_expr_struct(self, literal);
    }
}

fn noun(path: &Path) -> Option<String> {
    let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let (last, before) = names.split_last()?;
    let of_cri = before.last().is_some_and(|module| module == "v1");
    NOUNS.contains(&last.as_str()).then(|| if of_cri { format!("v1::{last}") } else { last.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_from_one_noun_to_another_are_listed_and_no_others() {
        let text = "fn spec(config: v1::ContainerConfig) -> Result<ContainerSpec, E> { f() }
impl Driver { async fn make(&self, spec: &ContainerSpec) -> Result<String, E> { g(ContainerRecord { id: 1 }) } }
impl From<&ContainerView> for v1::ContainerStatus { fn from(view: &ContainerView) -> Self { h(view) } }
impl Container { fn view(&self) -> Arc<ContainerView> { h(self) } fn same(self) -> Self { self } }
fn name(spec: &ContainerSpec) -> String { k() }
fn find(id: &str) -> Option<ContainerView> { k() }
#[cfg(test)] mod tests { fn view(spec: ContainerSpec) -> ContainerView { k() } }";
        let source = |path: &str| Source { path: path.into(), text: text.into() };
        let found = list(&[source("runtime/a.rs"), source("runtime/tests/a.rs"), source("vmm/a.rs")]);
        let expected = [
            "runtime/a.rs:1 spec: v1::ContainerConfig → ContainerSpec",
            "runtime/a.rs:2 make: ContainerSpec → ContainerRecord",
            "runtime/a.rs:3 from: ContainerView → v1::ContainerStatus",
            "runtime/a.rs:4 view: Container → ContainerView",
        ];
        assert_eq!(found, expected);
    }
}
