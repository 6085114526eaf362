//! Differences that are accepted, each with its reason: `accepted.toml`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::case::Case;

const TEXT: &str = include_str!("../accepted.toml");

/// Why a difference stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The pod has a kernel of its own.
    Vm,
    /// containerd or runc does wrong, and Podvisor does not.
    Better,
    /// containerd's answer has no meaning that a client could rely on, and Podvisor's is clear.
    Accident,
}

/// One difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    /// The case's name.
    pub(crate) case: String,
    /// What sort of reason it is.
    pub(crate) kind: Kind,
    /// The reason.
    pub(crate) reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    accepted: Vec<Accepted>,
}

/// The list.
///
/// # Errors
/// When the file is not in its form, or an entry names no case of the table.
pub(crate) fn list(cases: &[(&str, Case)]) -> Result<Vec<Accepted>> {
    let file: File = toml::from_str(TEXT).context("accepted.toml")?;
    for entry in &file.accepted {
        ensure!(
            cases.iter().any(|(_, case)| case.name == entry.case),
            "accepted.toml: there is no case {}",
            entry.case
        );
        ensure!(!entry.reason.is_empty(), "accepted.toml: {} has no reason", entry.case);
    }
    Ok(file.accepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn each_accepted_difference_is_of_a_case() {
        list(&table::cases().unwrap()).unwrap();
    }
}
