//! Crates with one version in everything released. The list is deny.toml's: entries of `bans.deny` with
//! `deny-multiple-versions`. This check works without an installed cargo-deny.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use crate::Dependency;

/// The crates with only one allowed version in deny.toml.
///
/// # Errors
/// If the text is no TOML or has no such list.
pub fn shared(deny: &str) -> anyhow::Result<Vec<String>> {
    let deny: toml::Table = deny.parse().context("deny.toml")?;
    let list = deny.get("bans").and_then(|bans| bans.get("deny")).and_then(toml::Value::as_array);
    let list = list.context("deny.toml has no bans.deny")?;
    let one_version = |entry: &&toml::Value| {
        entry.get("deny-multiple-versions").and_then(toml::Value::as_bool) == Some(true)
    };
    let names = list.iter().filter(one_version).filter_map(|entry| entry.get("crate")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The versions of each crate in the text of a Cargo.lock.
///
/// # Errors
/// If the text is no TOML or has no packages.
pub fn locked(lock: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        if let (Some(name), Some(version)) = (text("name"), text("version")) {
            versions.entry(name).or_default().push(version);
        }
    }
    Ok(versions)
}

/// One line for each shared crate with several versions.
#[must_use]
pub fn check(shared: &[String], dependencies: &BTreeSet<Dependency>) -> Vec<String> {
    let mut breaches = Vec::new();
    for name in shared {
        let same = dependencies.iter().filter(|dependency| dependency.name == *name);
        let versions: Vec<_> = same.map(|dependency| dependency.version.as_str()).collect();
        if versions.len() > 1 {
            breaches.push(format!("{name}: {} are linked; one must do", versions.join(" and ")));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_version_of_a_shared_crate_is_found() {
        let deny = r#"[bans]
            deny = [{ crate = "tokio", deny-multiple-versions = true }, { crate = "openssl-sys" }]"#;
        let shared = shared(deny).unwrap();
        assert_eq!(shared, ["tokio"]);
        let dependency = |name: &str, version: &str| Dependency {
            name: name.into(),
            version: version.into(),
            licence: None,
            source: None,
        };
        let mut linked = BTreeSet::from([
            dependency("tokio", "1.54.1"),
            dependency("nix", "0.26.4"),
            dependency("nix", "0.31.3"),
        ]);
        assert_eq!(check(&shared, &linked), Vec::<String>::new());
        linked.insert(dependency("tokio", "0.2.25"));
        assert_eq!(check(&shared, &linked), ["tokio: 0.2.25 and 1.54.1 are linked; one must do"]);
    }

    #[test]
    fn each_version_in_the_lock_file_is_listed() {
        let lock = "[[package]]\nname = \"nix\"\nversion = \"0.26.4\"\n\n[[package]]\nname = \"nix\"\nversion = \"0.31.3\"\n";
        let expected = BTreeMap::from([("nix".to_owned(), vec!["0.26.4".to_owned(), "0.31.3".to_owned()])]);
        assert_eq!(locked(lock).unwrap(), expected);
        assert!(locked("[package]").is_err());
    }

    #[test]
    fn a_deny_file_without_the_list_is_an_error() {
        assert!(shared("[bans]\nmultiple-versions = \"warn\"").is_err());
        assert!(shared("[bans").is_err());
    }
}
