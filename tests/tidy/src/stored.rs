//! The stored form of pods and images, by name: a list beside the store has each field and variant. A daemon
//! of an earlier release passes over fields that it does not know, and drops them with its next write. Only
//! the schema's number keeps it from being installed over them. So whoever changes the form has to decide
//! about the number, and the list has both.

use std::collections::BTreeSet;

use syn::{
    Attribute, Field, ItemConst, ItemEnum, ItemStruct,
    visit::{self, Visit},
};

use crate::Source;

/// The list. Its first line is the schema's number.
pub const LIST: &str = "runtime/store/stored.txt";

/// The file with the number.
const SCHEMA: &str = "runtime/store/src/schema.rs";

/// Files and folders with stored types: each that can be written and read.
const PLACES: &[&str] = &[
    "runtime/image/src/store/index.rs",
    "runtime/pod/src/boot_id.rs",
    "runtime/pod/src/host/memory_events.rs",
    "runtime/pod/src/record.rs",
    "runtime/pod/src/versions.rs",
    "runtime/pod/src/view.rs",
    "runtime/spec/src/",
];

/// One line for each difference between the sources and the list.
#[must_use]
pub fn check(sources: &[Source], list: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    let stored = stored(sources);
    let new = stored.iter().filter(|name| !listed.contains(name.as_str())).map(|name| {
        format!(
            "{LIST} lacks {name:?}: if an earlier daemon must not pass over it, raise SCHEMA_VERSION; then add the line"
        )
    });
    let gone = listed.iter().filter(|name| !stored.contains(**name)).map(|name| {
        format!(
            "{LIST} has {name:?}, and nothing stored has that name: if an earlier daemon needs it, raise \
             SCHEMA_VERSION; then remove the line"
        )
    });
    new.chain(gone).collect()
}

/// All names in the stored form, and the numbers of its versions.
fn stored(sources: &[Source]) -> BTreeSet<String> {
    let mut names = Names::default();
    for source in sources {
        let is_stored = PLACES.iter().any(|place| source.path.starts_with(place));
        if !is_stored && source.path != SCHEMA {
            continue;
        }
        if let Ok(file) = syn::parse_file(&source.text) {
            names.file.clone_from(&source.path);
            names.visit_file(&file);
        }
    }
    names.found
}

#[derive(Default)]
struct Names {
    file: String,
    found: BTreeSet<String>,
}

impl Names {
    fn fields<'a>(&mut self, owner: &str, fields: impl Iterator<Item = &'a Field>) {
        let names = fields.filter_map(|field| field.ident.as_ref());
        self.found.extend(names.map(|name| format!("{owner}.{name}")));
    }
}

impl Visit<'_> for Names {
    fn visit_item_const(&mut self, item: &ItemConst) {
        let name = item.ident.to_string();
        if let syn::Expr::Lit(value) = &*item.expr
            && let syn::Lit::Int(number) = &value.lit
            && ["VERSION", "SCHEMA_VERSION"].contains(&name.as_str())
        {
            self.found.insert(format!("{name} of {} is {number}", self.file));
        }
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        if is_stored(&item.attrs) {
            self.fields(&item.ident.to_string(), item.fields.iter());
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        if is_stored(&item.attrs) {
            for variant in &item.variants {
                let name = format!("{}::{}", item.ident, variant.ident);
                self.fields(&name, variant.fields.iter());
                self.found.insert(name);
            }
        }
        visit::visit_item_enum(self, item);
    }
}

/// Whether a type is both written and read.
fn is_stored(attributes: &[Attribute]) -> bool {
    let mut derived = BTreeSet::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let _ = attribute.parse_nested_meta(|meta| {
            derived.extend(meta.path.segments.last().map(|segment| segment.ident.to_string()));
            Ok(())
        });
    }
    ["Serialize", "Deserialize"].iter().all(|name| derived.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        vec![
            source(SCHEMA, "pub const SCHEMA_VERSION: u64 = 7;\nconst OTHER: u64 = 1;"),
            source(
                "runtime/pod/src/record.rs",
                "#[derive(Serialize, serde::Deserialize)] struct A { a: u8 }\n\
                 #[derive(Serialize, Deserialize)] enum E { One, Two { b: u8 } }\n\
                 #[derive(Serialize)] struct Shown { c: u8 }",
            ),
            source("runtime/pod/src/pods/mod.rs", "#[derive(Serialize, Deserialize)] struct Else { d: u8 }"),
        ]
    }

    const WHOLE: &str =
        "SCHEMA_VERSION of runtime/store/src/schema.rs is 7\n\nA.a\nE::One\nE::Two\nE::Two.b\n";

    #[test]
    fn the_list_has_what_is_stored_and_the_number() {
        assert_eq!(check(&sources(), WHOLE), Vec::<String>::new());
    }

    #[test]
    fn a_field_more_or_less_and_another_number_are_found() {
        let of = |list: String| check(&sources(), &list);
        let [new] = &of(WHOLE.replace("A.a\n", ""))[..] else { panic!() };
        assert!(new.contains("lacks \"A.a\": if an earlier daemon"), "{new}");
        let [gone] = &of(format!("{WHOLE}A.z\n"))[..] else { panic!() };
        assert!(gone.contains("has \"A.z\", and nothing stored"), "{gone}");
        assert_eq!(of(WHOLE.replace("is 7", "is 6")).len(), 2);
    }
}
