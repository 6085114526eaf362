//! Follows a path from its module to its target.

use super::tree::{Code, Kind};

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A module itself.
    Module(usize),
    /// An item of a module, by its place in [`Code::definitions`]. A path beyond an item (an enum's variant,
    /// a type's function) ends at the item.
    Item(usize),
}

/// Most imports followed for one path: a circle of imports ends there.
const HOPS_MAX: usize = 16;

impl Code {
    /// Returns the target of a path written in `module`, or none outside of this code.
    #[must_use]
    pub fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.from(module, path, true, 0)
    }

    /// The root of a module's crate.
    #[must_use]
    pub fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// `bare` is for a path as in code: its first name may be a crate. Otherwise it is a path below `module`.
    fn from(&self, module: usize, path: &[String], bare: bool, hops: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        if hops > HOPS_MAX {
            return None;
        }
        match first.as_str() {
            "crate" => return self.from(self.root(module), rest, false, hops),
            "self" => return self.from(module, rest, false, hops),
            "super" => return self.from(self.modules[module].parent?, rest, false, hops),
            _ => {}
        }
        let here = &self.modules[module];
        // A module and a function may share a name; the rest of the path decides.
        if let (Some(child), false) = (here.children.get(first), rest.is_empty()) {
            return self.from(*child, rest, false, hops);
        }
        // So may a function and an imported module.
        let goes_on = |item: &usize| rest.is_empty() || self.definitions[*item].kind == Kind::Type;
        if let Some(item) = here.defined.get(first).filter(|item| goes_on(item)) {
            return Some(Target::Item(*item));
        }
        for import in here.imports.get(first).into_iter().flatten() {
            // An import of a name under its own name (`use resolve::resolve`) looks at children only.
            if import.path != path[..1] {
                let whole: Vec<_> = import.path.iter().chain(rest).cloned().collect();
                if let Some(target) = self.from(module, &whole, true, hops + 1) {
                    return Some(target);
                }
            }
        }
        if let Some(child) = here.children.get(first) {
            return self.from(*child, rest, false, hops);
        }
        if bare && let Some(library) = self.libraries.get(first) {
            return self.from(*library, rest, false, hops + 1);
        }
        here.globs.iter().find_map(|glob| {
            let Some(Target::Module(brought)) = self.from(module, glob, true, hops + 1) else { return None };
            if brought == module { None } else { self.from(brought, path, false, hops + 1) }
        })
    }
}
