//! Accepted differences, each with its reason: `accepted.toml`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::case::Case;

const TEXT: &str = include_str!("../accepted.toml");

/// Why a difference stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The pod has its own kernel.
    Vm,
    /// containerd or runc does wrong, and Podvisor does not.
    Better,
    /// containerd's answer has no reliable meaning for a client, and Podvisor's is clear.
    Accident,
}

/// One difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    /// The case's name.
    pub(crate) case: String,
    /// The kind of the reason.
    pub(crate) kind: Kind,
    /// The reason.
    pub(crate) reason: String,
    /// The major version of the differing containerd, with the runc of its time; without one, all of them.
    pub(crate) containerd: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    accepted: Vec<Accepted>,
}

/// The differences from a containerd of this version, as it states it.
///
/// # Errors
/// When the file is not in its form, or an entry names no case of the table.
pub(crate) fn list(cases: &[(&str, Case)], version: &str) -> Result<Vec<Accepted>> {
    let major: u32 = version.trim_start_matches('v').split('.').next().unwrap_or_default().parse()?;
    let mut file: File = toml::from_str(TEXT).context("accepted.toml")?;
    for entry in &file.accepted {
        ensure!(
            cases.iter().any(|(_, case)| case.name == entry.case),
            "accepted.toml: there is no case {}",
            entry.case
        );
        ensure!(!entry.reason.is_empty(), "accepted.toml: {} has no reason", entry.case);
    }
    file.accepted.retain(|entry| entry.containerd.is_none_or(|wanted| wanted == major));
    Ok(file.accepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn each_accepted_difference_is_of_a_case() {
        list(&table::cases().unwrap(), "1.6.20~ds1").unwrap();
    }

    #[test]
    fn an_entry_may_be_of_one_major_version() {
        let of = |version| list(&table::cases().unwrap(), version).unwrap();
        let (one, two) = (of("1.6.20~ds1"), of("v2.4.0-beta"));
        assert!(one.iter().all(|entry| entry.containerd != Some(2)));
        assert!(two.iter().all(|entry| entry.containerd != Some(1)));
        assert_ne!(one.len(), two.len());
    }
}
