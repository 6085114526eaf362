//! Modules, read from the files of a crate by its `mod` declarations.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use syn::{
    Attribute, Expr, Ident, ImplItem, Item, ItemImpl, ItemMod, Lit, Meta, TraitItem, UseTree, Visibility,
};

use super::attributes::{of_item, only_tests};
use super::mentions::{self, Mention};
use crate::{Crate, Source};

/// One module, of a file or inline.
#[derive(Debug)]
pub struct Module {
    /// The crate's name.
    pub krate: String,
    /// The file of the module, from the repository's root.
    pub file: String,
    /// The module around it; none for a root.
    pub parent: Option<usize>,
    /// Modules declared in it, by name.
    pub children: BTreeMap<String, usize>,
    /// Items defined in it, by name, with their place in [`Code::definitions`].
    pub defined: BTreeMap<String, usize>,
    /// Paths bound to a name by `use`, and true for a re-export.
    pub imports: BTreeMap<String, Vec<Import>>,
    /// Modules brought in by `use …::*`.
    pub globs: Vec<Vec<String>>,
    /// Paths and method calls in its code.
    pub mentions: Vec<Mention>,
}

/// One name brought in by a `use` declaration.
#[derive(Clone, Debug)]
pub struct Import {
    /// The whole path.
    pub path: Vec<String>,
    /// True if the declaration has its own visibility (`pub use`).
    pub re_export: bool,
}

/// The kind of a definition's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A type or a trait of a module: a path may go on behind its name.
    Type,
    /// A function, constant, static or macro of a module.
    Value,
    /// A function of an `impl` block, or of a trait, with a receiver.
    Method,
    /// A function or constant of an `impl` block, or of a trait, without a receiver.
    Associated,
}

/// One item defined by a module.
#[derive(Debug)]
pub struct Definition {
    /// The item's name.
    pub name: String,
    /// The type or trait of a method or an associated item.
    pub owner: Option<String>,
    /// The module.
    pub module: usize,
    /// The line of its name.
    pub line: usize,
    /// True if it is `pub` without a restriction.
    pub public: bool,
    /// The sort of item.
    pub kind: Kind,
}

/// All modules and definitions of some crates.
#[derive(Debug, Default)]
pub struct Code {
    /// Every module.
    pub modules: Vec<Module>,
    /// Every definition.
    pub definitions: Vec<Definition>,
    /// The root module of each library, by its name in other crates.
    pub libraries: BTreeMap<String, usize>,
}

impl Code {
    /// Reads the given crates from their roots. An unparsable file is left out: the compiler refuses it.
    #[must_use]
    pub fn read(crates: &[Crate], sources: &[Source]) -> Self {
        let texts = sources.iter().map(|source| (source.path.as_str(), source.text.as_str())).collect();
        let mut reader = Reader { texts, code: Self::default() };
        for ours in crates {
            for root in &ours.roots {
                let Some(module) = reader.file(&ours.name, root, None) else { continue };
                if root.ends_with("/lib.rs") {
                    reader.code.libraries.insert(ours.name.replace('-', "_"), module);
                }
            }
        }
        reader.code
    }
}

struct Reader<'a> {
    texts: HashMap<&'a str, &'a str>,
    code: Code,
}

impl Reader<'_> {
    fn file(&mut self, krate: &str, path: &str, parent: Option<usize>) -> Option<usize> {
        let file = syn::parse_file(self.texts.get(path)?).ok()?;
        let stem = Path::new(path).with_extension("");
        let root = parent.is_none() || stem.ends_with("mod");
        let below = if root { stem.parent().map(PathBuf::from).unwrap_or_default() } else { stem };
        let module = self.module(krate, path, parent);
        self.items(module, &below, &file.items);
        Some(module)
    }

    fn module(&mut self, krate: &str, file: &str, parent: Option<usize>) -> usize {
        self.code.modules.push(Module {
            krate: krate.to_owned(),
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            defined: BTreeMap::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        });
        self.code.modules.len() - 1
    }

    /// Takes in a module's items; the files of its children lie in `below`.
    fn items(&mut self, module: usize, below: &Path, items: &[Item]) {
        for item in items.iter().filter(|item| !only_tests(of_item(item))) {
            match item {
                Item::Mod(declared) => self.declared(module, below, declared),
                Item::Use(used) => {
                    self.import(module, &used.tree, !matches!(used.vis, Visibility::Inherited));
                }
                Item::Impl(block) => self.methods(module, block),
                Item::Trait(item) => {
                    self.define(module, &item.ident, &item.vis, None, Kind::Type);
                    for item_of in &item.items {
                        if let TraitItem::Fn(function) = item_of {
                            let kind = kind(&function.sig);
                            self.define(module, &function.sig.ident, &item.vis, Some(&item.ident), kind);
                        }
                    }
                }
                other => {
                    if let Some((name, visibility, kind)) = named(other) {
                        self.define(module, name, visibility, None, kind);
                    }
                }
            }
            if !matches!(item, Item::Mod(_)) {
                let found = mentions::of(item);
                for (path, re_export) in found.imports {
                    self.bind(module, path, re_export);
                }
                self.code.modules[module].mentions.extend(found.mentions);
            }
        }
    }

    fn declared(&mut self, module: usize, below: &Path, declared: &ItemMod) {
        let name = declared.ident.to_string();
        let (krate, file) = {
            let around = &self.code.modules[module];
            (around.krate.clone(), around.file.clone())
        };
        let child = match &declared.content {
            Some((_, items)) => {
                let child = self.module(&krate, &file, Some(module));
                self.items(child, &below.join(&name), items);
                Some(child)
            }
            None => {
                let beside = path_attribute(&declared.attrs)
                    .and_then(|path| Some(Path::new(&file).parent()?.join(path)))
                    .into_iter();
                let usual = [below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")];
                beside.chain(usual).find_map(|path| self.file(&krate, path.to_str()?, Some(module)))
            }
        };
        if let Some(child) = child {
            self.code.modules[module].children.insert(name, child);
        }
    }

    fn methods(&mut self, module: usize, block: &ItemImpl) {
        let owner = mentions::self_type(block);
        let (None, Some(owner)) = (&block.trait_, owner) else { return };
        for item in &block.items {
            match item {
                ImplItem::Fn(function) if !only_tests(&function.attrs) => {
                    let kind = kind(&function.sig);
                    self.define(module, &function.sig.ident, &function.vis, Some(&owner), kind);
                }
                ImplItem::Const(constant) if !only_tests(&constant.attrs) => {
                    self.define(module, &constant.ident, &constant.vis, Some(&owner), Kind::Associated);
                }
                _ => {}
            }
        }
    }

    fn define(
        &mut self,
        module: usize,
        name: &Ident,
        visibility: &Visibility,
        owner: Option<&Ident>,
        kind: Kind,
    ) {
        let at = self.code.definitions.len();
        if owner.is_none() {
            self.code.modules[module].defined.insert(name.to_string(), at);
        }
        self.code.definitions.push(Definition {
            name: name.to_string(),
            owner: owner.map(Ident::to_string),
            module,
            line: name.span().start().line,
            public: matches!(visibility, Visibility::Public(_)),
            kind,
        });
    }

    fn import(&mut self, module: usize, tree: &UseTree, re_export: bool) {
        for path in mentions::leaves(tree) {
            self.bind(module, path, re_export);
        }
    }

    fn bind(&mut self, module: usize, (name, path): (String, Vec<String>), re_export: bool) {
        let module = &mut self.code.modules[module];
        if name == "*" {
            module.globs.push(path);
        } else {
            module.imports.entry(name).or_default().push(Import { path, re_export });
        }
    }
}

fn kind(signature: &syn::Signature) -> Kind {
    if signature.receiver().is_some() { Kind::Method } else { Kind::Associated }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(path) = &literal.lit else { return None };
        Some(path.value())
    })
}

/// The name, visibility and kind of an item, except for modules, imports, `impl`s and traits.
fn named(item: &Item) -> Option<(&Ident, &Visibility, Kind)> {
    match item {
        Item::Const(item) => Some((&item.ident, &item.vis, Kind::Value)),
        Item::Enum(item) => Some((&item.ident, &item.vis, Kind::Type)),
        Item::Fn(item) => Some((&item.sig.ident, &item.vis, Kind::Value)),
        Item::Macro(item) => item.ident.as_ref().map(|name| (name, &Visibility::Inherited, Kind::Value)),
        Item::Static(item) => Some((&item.ident, &item.vis, Kind::Value)),
        Item::Struct(item) => Some((&item.ident, &item.vis, Kind::Type)),
        Item::TraitAlias(item) => Some((&item.ident, &item.vis, Kind::Type)),
        Item::Type(item) => Some((&item.ident, &item.vis, Kind::Type)),
        Item::Union(item) => Some((&item.ident, &item.vis, Kind::Type)),
        _ => None,
    }
}
