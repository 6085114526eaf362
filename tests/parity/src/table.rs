//! The cases of `cases/`, a file for each area. They are part of the program, so it runs anywhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::case::Case;

/// Areas, and their files.
const FILES: &[(&str, &str)] = &[
    ("environment", include_str!("../cases/environment.toml")),
    ("exec", include_str!("../cases/exec.toml")),
    ("images", include_str!("../cases/images.toml")),
    ("limits", include_str!("../cases/limits.toml")),
    ("mount_points", include_str!("../cases/mount_points.toml")),
    ("mounts", include_str!("../cases/mounts.toml")),
    ("privileges", include_str!("../cases/privileges.toml")),
    ("process", include_str!("../cases/process.toml")),
    ("reports", include_str!("../cases/reports.toml")),
    ("settings", include_str!("../cases/settings.toml")),
    ("special", include_str!("../cases/special.toml")),
    ("users", include_str!("../cases/users.toml")),
    ("working_directory", include_str!("../cases/working_directory.toml")),
];

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// The cases of a file outside the table, for trying them.
///
/// # Errors
/// When it cannot be read, or is not in the form of cases.
pub(crate) fn cases_of(path: &Path) -> Result<Vec<Case>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.case)
}

/// All cases, each with its area.
///
/// # Errors
/// When a file is not in the form of cases, or two cases have one name.
pub(crate) fn cases() -> Result<Vec<(&'static str, Case)>> {
    let mut all = Vec::new();
    for (area, text) in FILES {
        let file: File = toml::from_str(text).with_context(|| format!("cases/{area}.toml"))?;
        all.extend(file.case.into_iter().map(|case| (*area, case)));
    }
    let mut names = BTreeSet::new();
    for (area, case) in &all {
        ensure!(!case.name.is_empty(), "cases/{area}.toml: a case has no name");
        ensure!(names.insert(case.name.clone()), "cases/{area}.toml: {} is there twice", case.name);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn every_case_is_in_the_form_of_cases() {
        for (area, case) in cases().unwrap() {
            tree::layer(&case.image.tree).unwrap_or_else(|error| panic!("{area} {}: {error:#}", case.name));
        }
    }
}
