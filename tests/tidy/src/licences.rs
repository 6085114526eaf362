//! Licences and sources of what is linked into anything of ours are those that deny.toml allows, and crates of which there are
//! several versions are few. cargo-deny says the same with more words (`.ci/deny`); this needs nothing but cargo, so that it is
//! looked at in each run of the tests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use crate::Dependency;

/// Crates of which two versions or more are linked: each costs build time and bytes. A new one takes an argument and another
/// number here; one that goes takes it down.
const SEVERAL_VERSIONS_MAX: usize = 9;

/// What deny.toml allows.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    licences: BTreeSet<String>,
    registries: BTreeSet<String>,
}

impl Allowed {
    /// Reads deny.toml.
    ///
    /// # Errors
    /// If the text is no TOML or has not both lists.
    pub fn read(deny: &str) -> anyhow::Result<Self> {
        let deny: toml::Table = deny.parse().context("deny.toml")?;
        let list = |table: &str, key: &str| -> anyhow::Result<BTreeSet<String>> {
            let list = deny.get(table).and_then(|table| table.get(key)).and_then(toml::Value::as_array);
            let list = list.with_context(|| format!("deny.toml has no {table}.{key}"))?;
            Ok(list.iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect())
        };
        Ok(Self { licences: list("licenses", "allow")?, registries: list("sources", "allow-registry")? })
    }
}

/// One line for each crate with a licence or a source that is not allowed, and one if too many have several versions.
#[must_use]
pub fn check(allowed: &Allowed, dependencies: &BTreeSet<Dependency>) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for dependency in dependencies {
        let Dependency { name, version, licence, source } = dependency;
        *versions.entry(name).or_default() += 1;
        match licence.as_deref().map(|text| (text, is_allowed(text, &allowed.licences))) {
            Some((_, Some(true))) => {}
            Some((text, Some(false))) => {
                breaches.push(format!("{name} {version}: {text} is not allowed by deny.toml"));
            }
            Some((text, None)) => breaches.push(format!("{name} {version}: {text:?} is no SPDX expression")),
            None => breaches.push(format!("{name} {version}: it names no licence")),
        }
        // Ours have none.
        let Some(source) = source else { continue };
        if !source.strip_prefix("registry+").is_some_and(|registry| allowed.registries.contains(registry)) {
            breaches.push(format!("{name} {version}: {source} is no source that deny.toml allows"));
        }
    }
    let several: Vec<_> = versions.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    if several.len() > SEVERAL_VERSIONS_MAX {
        let (count, names) = (several.len(), several.join(", "));
        breaches.push(format!(
            "{count} crates are there in several versions, and {SEVERAL_VERSIONS_MAX} may: {names}"
        ));
    }
    breaches
}

/// Whether an SPDX expression can be met by these licences; `None` for what is no expression. An exception only adds rights,
/// so that what stands after WITH does not count.
fn is_allowed(expression: &str, licences: &BTreeSet<String>) -> Option<bool> {
    // Older manifests have a slash for "or".
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any(&words, licences)?;
    rest.is_empty().then_some(met)
}

fn any<'a>(words: &'a [&'a str], licences: &BTreeSet<String>) -> Option<(bool, &'a [&'a str])> {
    let (mut met, mut rest) = all(words, licences)?;
    while let Some(("OR", after)) = rest.split_first().map(|(word, after)| (*word, after)) {
        let (other, after) = all(after, licences)?;
        (met, rest) = (met || other, after);
    }
    Some((met, rest))
}

fn all<'a>(words: &'a [&'a str], licences: &BTreeSet<String>) -> Option<(bool, &'a [&'a str])> {
    let (mut met, mut rest) = one(words, licences)?;
    while let Some(("AND", after)) = rest.split_first().map(|(word, after)| (*word, after)) {
        let (other, after) = one(after, licences)?;
        (met, rest) = (met && other, after);
    }
    Some((met, rest))
}

fn one<'a>(words: &'a [&'a str], licences: &BTreeSet<String>) -> Option<(bool, &'a [&'a str])> {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = any(inner, licences)?;
            Some((met, rest.strip_prefix(&[")"])?))
        }
        [")" | "OR" | "AND" | "WITH", ..] | [] => None,
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => Some((licences.contains(*licence), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0", "Unicode-3.0"]
        [sources]
        allow-registry = ["https://github.com/rust-lang/crates.io-index"]
    "#;

    fn dependency(name: &str, version: &str, licence: Option<&str>, source: Option<&str>) -> Dependency {
        Dependency {
            name: name.into(),
            version: version.into(),
            licence: licence.map(str::to_owned),
            source: source.map(str::to_owned),
        }
    }

    #[test]
    fn an_expression_is_met_by_what_is_allowed() {
        let licences = Allowed::read(DENY).unwrap().licences;
        for (expression, met) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-2.0-only OR MIT", Some(true)),
            ("MIT/Unlicense", Some(true)),
            ("MIT AND GPL-2.0-only", Some(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("MIT OR GPL-2.0-only AND GPL-3.0-only", Some(true)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", Some(true)),
            ("(MIT", None),
            ("MIT OR", None),
            ("MIT Apache-2.0", None),
            ("", None),
        ] {
            assert_eq!(is_allowed(expression, &licences), met, "{expression}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_found() {
        let allowed = Allowed::read(DENY).unwrap();
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        let linked = BTreeSet::from([
            dependency("a", "1.0.0", Some("MIT"), registry),
            dependency("ours", "0.1.0", Some("Apache-2.0"), None),
            dependency("b", "1.0.0", Some("AGPL-3.0-only"), registry),
            dependency("c", "1.0.0", None, registry),
            dependency("d", "1.0.0", Some("MIT"), Some("git+https://example.org/d")),
        ]);
        assert_eq!(
            check(&allowed, &linked),
            [
                "b 1.0.0: AGPL-3.0-only is not allowed by deny.toml",
                "c 1.0.0: it names no licence",
                "d 1.0.0: git+https://example.org/d is no source that deny.toml allows",
            ]
        );
    }

    #[test]
    fn one_crate_too_many_in_several_versions_is_found() {
        let allowed = Allowed::read(DENY).unwrap();
        let twice = |count: usize| -> BTreeSet<Dependency> {
            let numbers = (0..count).flat_map(|number| [(number, "1.0.0"), (number, "2.0.0")]);
            numbers
                .map(|(number, version)| dependency(&format!("c{number}"), version, Some("MIT"), None))
                .collect()
        };
        assert_eq!(check(&allowed, &twice(SEVERAL_VERSIONS_MAX)), Vec::<String>::new());
        let breaches = check(&allowed, &twice(SEVERAL_VERSIONS_MAX + 1));
        assert!(breaches.len() == 1 && breaches[0].contains("several versions"), "{breaches:?}");
    }

    #[test]
    fn a_deny_file_without_the_lists_is_an_error() {
        assert!(Allowed::read("[licenses]\nallow = []").is_err() && Allowed::read("[sources").is_err());
    }
}
