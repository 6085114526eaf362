//! The lock file of the fuzz targets, a separate workspace: it follows the manifests of our crates. Otherwise
//! Cargo refuses it with `--locked`, noticed only at the lints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::Crate;

/// Names of the crates requested by or locked for each of our crates.
pub type Needs = BTreeMap<String, BTreeSet<String>>;

/// Reads the requests of the manifests of the workspace at `root`, without tests and optional crates.
///
/// # Errors
/// If a manifest cannot be read, or is invalid TOML.
pub fn asked(root: &Path, crates: &[Crate]) -> Result<Needs> {
    let read = |ours: &Crate| {
        let path = root.join(&ours.dir).join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
        Ok((ours.name.clone(), dependencies(&manifest)))
    };
    crates.iter().map(read).collect()
}

/// Reads a lock file's entries for the crates on this disk.
///
/// # Errors
/// If the text is invalid TOML.
pub fn locked(lock: &str) -> Result<Needs> {
    let lock: toml::Table = lock.parse().context("the fuzz targets' Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let here = packages.filter(|package| package.get("source").is_none());
    let first_word = |value: &toml::Value| Some(value.as_str()?.split(' ').next()?.to_owned());
    let entry = |package: &toml::Value| {
        let dependencies = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        Some((package.get("name")?.as_str()?.to_owned(), dependencies.filter_map(first_word).collect()))
    };
    Ok(here.filter_map(entry).collect())
}

/// One line for each request of a locked crate of ours missing in the lock file.
#[must_use]
pub fn check(asked: &Needs, locked: &Needs) -> Vec<String> {
    let nothing = BTreeSet::new();
    let missing = |name: &String, have: &BTreeSet<String>| {
        let asked = asked.get(name).unwrap_or(&nothing);
        asked
            .difference(have)
            .map(|needed| format!("tests/fuzz/Cargo.lock: {name} lacks {needed}"))
            .collect::<Vec<_>>()
    };
    locked.iter().flat_map(|(name, have)| missing(name, have)).collect()
}

fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let optional = |value: &toml::Value| value.get("optional").and_then(toml::Value::as_bool) == Some(true);
    let tables = ["dependencies", "build-dependencies"]
        .map(|table| manifest.get(table).and_then(toml::Value::as_table));
    let entries = tables.into_iter().flatten().flatten().filter(|(_, value)| !optional(value));
    let package = |value: &toml::Value| value.get("package").and_then(toml::Value::as_str).map(str::to_owned);
    entries.map(|(name, value)| package(value).unwrap_or_else(|| name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
        [[package]]
        name = "runtime-net"
        version = "0.1.0"
        dependencies = ["nix 0.31.3", "runtime-pieces"]

        [[package]]
        name = "nix"
        version = "0.31.3"
        source = "registry+https://github.com/rust-lang/crates.io-index"
    "#;

    fn asked_by(manifest: &str) -> Needs {
        BTreeMap::from([("runtime-net".to_owned(), dependencies(&manifest.parse().unwrap()))])
    }

    #[test]
    fn a_crate_that_is_asked_for_and_not_locked_is_found() {
        let locked = locked(LOCK).unwrap();
        let manifest = "[dependencies]\nnix.workspace = true\nruntime-pieces.workspace = true\n[dev-dependencies]\nproptest = '1'";
        assert_eq!(check(&asked_by(manifest), &locked), Vec::<String>::new());
        let more = "[dependencies]\nlibc.workspace = true\nzstd = { version = '1', optional = true }";
        assert_eq!(check(&asked_by(more), &locked), ["tests/fuzz/Cargo.lock: runtime-net lacks libc"]);
    }
}
