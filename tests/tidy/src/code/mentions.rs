//! The paths and method calls in an item's code, macros' tokens and attributes' strings included.

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ExprMethodCall, Field, Ident, ImplItem, Item, ItemFn, ItemImpl, ItemUse, Local, Macro, Meta,
    Path, TraitItem, Type, UseTree, Visibility,
    visit::{self, Visit},
};

use super::attributes::{of_item, only_tests};

/// How a name is mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By a path in code.
    Path,
    /// By a `use` declaration.
    Import,
    /// By a `pub use` declaration, of whatever reach.
    ReExport,
    /// As a called method.
    Method,
}

/// One mention of a name.
#[derive(Clone, Debug)]
pub struct Mention {
    /// The path; of a method its name alone.
    pub path: Vec<String>,
    /// How.
    pub form: Form,
    /// The type of the surrounding `impl` block, or the surrounding function.
    pub within: Option<String>,
}

/// A name bound by an import, `*` for a glob, and the path behind it.
pub(super) type Binding = (String, Vec<String>);

/// All mentions of one item.
#[derive(Default)]
pub(super) struct Found {
    pub(super) mentions: Vec<Mention>,
    /// Imports inside of functions, as if they were the module's.
    pub(super) imports: Vec<(Binding, bool)>,
    within: Vec<String>,
    /// The walk's depth in the item. The reader of the module binds an item if it is a `use` itself.
    depth: usize,
}

pub(super) fn of(item: &Item) -> Found {
    let mut found = Found::default();
    found.visit_item(item);
    found
}

/// The name of an `impl` block's type.
pub(super) fn self_type(block: &ItemImpl) -> Option<Ident> {
    let Type::Path(path) = &*block.self_ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.clone())
}

/// The bindings of a `use` declaration.
pub(super) fn leaves(tree: &UseTree) -> Vec<Binding> {
    fn walk(tree: &UseTree, before: &[String], all: &mut Vec<Binding>) {
        let joined = |name: &Ident| {
            let mut path = before.to_vec();
            // `use a::{self}` is `use a`.
            if name != "self" || before.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            UseTree::Path(path) => walk(&path.tree, &joined(&path.ident), all),
            UseTree::Name(name) => {
                let path = joined(&name.ident);
                all.push((path.last().cloned().unwrap_or_default(), path));
            }
            UseTree::Rename(rename) => all.push((rename.rename.to_string(), joined(&rename.ident))),
            UseTree::Glob(_) => all.push(("*".to_owned(), before.to_vec())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, before, all)),
        }
    }
    let mut all = Vec::new();
    walk(tree, &[], &mut all);
    all
}

impl Found {
    fn note(&mut self, path: Vec<String>, form: Form) {
        self.mentions.push(Mention { path, form, within: self.within.last().cloned() });
    }

    /// Paths and method calls among unparsed tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut path: Vec<String> = Vec::new();
        let punct = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(name) => {
                    let called = at > 0 && punct(at - 1, '.') && !(at > 1 && punct(at - 2, '.'));
                    if called {
                        self.note(vec![name.to_string()], Form::Method);
                        continue;
                    }
                    path.push(name.to_string());
                    if !(punct(at + 1, ':') && punct(at + 2, ':')) || punct(at + 3, '<') {
                        self.note(std::mem::take(&mut path), Form::Path);
                    }
                }
                TokenTree::Group(group) => {
                    path.clear();
                    self.tokens(group.stream());
                }
                TokenTree::Literal(literal) => {
                    for name in captured(&literal.to_string()) {
                        self.note(vec![name], Form::Path);
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                TokenTree::Punct(_) => path.clear(),
            }
        }
    }
}

/// Names between the braces of a format string.
fn captured(literal: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let names = literal.split('{').skip(1).map(word);
    names.filter(|name| name.starts_with(|c: char| c.is_alphabetic())).collect()
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_tests(of_item(item)) {
            self.depth += 1;
            visit::visit_item(self, item);
            self.depth -= 1;
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.within.push(function.sig.ident.to_string());
        visit::visit_item_fn(self, function);
        self.within.pop();
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        block.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        self.visit_generics(&block.generics);
        if let Some((_, path, _)) = &block.trait_ {
            self.visit_path(path);
        }
        // Within its own block, so implementing a type does not count as its use.
        self.within.push(self_type(block).map(|name| name.to_string()).unwrap_or_default());
        self.visit_type(&block.self_ty);
        block.items.iter().for_each(|item| self.visit_impl_item(item));
        self.within.pop();
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Const(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !only_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let TraitItem::Fn(function) = item else { return visit::visit_trait_item(self, item) };
        if !only_tests(&function.attrs) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !only_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !only_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        let re_export = !matches!(used.vis, Visibility::Inherited);
        for (name, path) in leaves(&used.tree) {
            if self.depth > 1 {
                self.imports.push(((name.clone(), path.clone()), re_export));
            }
            if name != "*" {
                self.note(path, if re_export { Form::ReExport } else { Form::Import });
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.note(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), Form::Path);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.note(vec![call.method.to_string()], Form::Method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, used: &'ast Macro) {
        self.visit_path(&used.path);
        self.tokens(used.tokens.clone());
    }

    /// Derives may be given the names of functions in strings (`#[serde(default = "path")]`).
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        for token in list.tokens.clone() {
            if let TokenTree::Literal(literal) = token {
                let path = literal.to_string();
                let path = path.trim_matches('"').split("::").map(str::to_owned);
                self.note(path.collect(), Form::Path);
            }
        }
        self.tokens(list.tokens.clone());
    }
}
