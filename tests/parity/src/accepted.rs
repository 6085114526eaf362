//! Accepted differences, each with its reason: `accepted.toml`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

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
    /// The name of the case or script.
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

/// The differences from a containerd of this version, as it states it. `names` are those of all cases and
/// scripts.
///
/// # Errors
/// When the file is not in its form, or an entry names no case and no script.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>, version: &str) -> Result<Vec<Accepted>> {
    let names: BTreeSet<&str> = names.collect();
    let major: u32 = version.trim_start_matches('v').split('.').next().unwrap_or_default().parse()?;
    let mut file: File = toml::from_str(TEXT).context("accepted.toml")?;
    for entry in &file.accepted {
        ensure!(
            names.contains(entry.case.as_str()),
            "accepted.toml: there is no case and no script {}",
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
    use crate::{calls, table};

    fn of(version: &str) -> Vec<Accepted> {
        let (cases, scripts) = (table::cases().unwrap(), calls::scripts().unwrap());
        let names = cases.iter().map(|(_, case)| case.name.as_str());
        list(names.chain(scripts.iter().map(|script| script.name.as_str())), version).unwrap()
    }

    #[test]
    fn each_accepted_difference_is_of_a_case_or_a_script() {
        of("1.6.20~ds1");
    }

    #[test]
    fn an_entry_may_be_of_one_major_version() {
        let (one, two) = (of("1.6.20~ds1"), of("v2.4.0-beta"));
        assert!(one.iter().all(|entry| entry.containerd != Some(2)));
        assert!(two.iter().all(|entry| entry.containerd != Some(1)));
        assert_ne!(one.len(), two.len());
    }
}
