//! The longest files and functions: to look at, not to fail on.

use proc_macro2::Span;
use syn::{
    Block, ImplItemFn, ItemFn, Signature, TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::Source;

/// Most lines of an easily read function.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Something long, and its lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Long {
    /// "runtime/net/src/cni.rs", with ":12 setup" for a function.
    pub what: String,
    /// How many lines it has.
    pub lines: usize,
}

/// The `count` longest files, longest first.
#[must_use]
pub fn longest_files(sources: &[Source], count: usize) -> Vec<Long> {
    let lines = |source: &Source| Long { what: source.path.clone(), lines: source.text.lines().count() };
    longest(sources.iter().map(lines).collect(), count)
}

/// The `count` longest functions, longest first. Unparsable files have none.
#[must_use]
pub fn longest_functions(sources: &[Source], count: usize) -> Vec<Long> {
    let mut found = Functions { path: "", all: Vec::new() };
    for source in sources {
        if let Ok(file) = syn::parse_file(&source.text) {
            found.path = &source.path;
            found.visit_file(&file);
        }
    }
    longest(found.all, count)
}

fn longest(mut all: Vec<Long>, count: usize) -> Vec<Long> {
    all.sort_by_key(|long| std::cmp::Reverse(long.lines));
    all.truncate(count);
    all
}

struct Functions<'a> {
    path: &'a str,
    all: Vec<Long>,
}

impl Functions<'_> {
    /// From the signature to the closing brace; comments and attributes before it do not count.
    fn note(&mut self, signature: &Signature, body: &Block) {
        let line = |span: Span| (span.start().line, span.end().line);
        let (first, last) = (line(signature.span()).0, line(body.span()).1);
        let what = format!("{}:{first} {}", self.path, signature.ident);
        self.all.push(Long { what, lines: last + 1 - first });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.note(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_functions_of_every_kind_are_measured() {
        let text = "fn short() {}\n\nimpl X {\n    /// Docs.\n    fn long(\n        &self,\n    ) {\n        f();\n    }\n}\n\
                    trait T {\n    fn two() {\n    }\n    fn none();\n}\n";
        let sources = [Source { path: "a.rs".into(), text: text.into() }];
        let found: Vec<_> =
            longest_functions(&sources, 2).into_iter().map(|long| (long.what, long.lines)).collect();
        assert_eq!(found, [("a.rs:5 long".to_owned(), 5), ("a.rs:12 two".to_owned(), 2)]);
        assert_eq!(longest_files(&sources, 9), [Long { what: "a.rs".into(), lines: 15 }]);
    }
}
