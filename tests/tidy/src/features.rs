//! Features of the crates in test builds. Unit tests are built without the end-to-end tests. Those are built
//! later: if they ask for another feature of a crate, everything above that crate is compiled twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The one crate left out of the unit tests' build.
const LEFT_OUT: &str = "tests-e2e";

/// Each crate as cargo writes it, in a line: name, version, features.
pub type Resolved = BTreeSet<String>;

/// The crates of a build without the end-to-end tests, and of one with them. `root` is the workspace's
/// directory.
///
/// # Errors
/// If cargo does not know all crates.
pub fn read(root: &Path) -> Result<(Resolved, Resolved)> {
    Ok((resolved(root, &["--exclude", LEFT_OUT])?, resolved(root, &[])?))
}

/// Crates of both builds with other features in the second.
pub fn check((without, with): &(Resolved, Resolved)) -> Vec<String> {
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let names: BTreeSet<_> = without.iter().map(|line| name(line)).collect();
    let others = with.difference(without).filter(|line| names.contains(&name(line)));
    others.map(|line| format!("{line}: has other features without {LEFT_OUT}")).collect()
}

fn resolved(root: &Path, arguments: &[&str]) -> Result<Resolved> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["tree", "--workspace", "--prefix=none", "--no-dedupe", "--format={p} {f}"]);
    let output = cargo.args(arguments).output().context("running cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_one_feature_more_is_found_and_a_new_crate_is_not() {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        let without = lines(&["regex v1.2.3 std", "serde v1.0.0 default"]);
        let with = lines(&["regex v1.2.3 perf,std", "serde v1.0.0 default", "rand v0.9.0 std"]);
        assert_eq!(check(&(without, with)), ["regex v1.2.3 perf,std: has other features without tests-e2e"]);
    }
}
