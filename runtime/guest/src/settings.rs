//! The outcome of applying a pod's network settings in its guest. The answer comes from a guest, so the
//! reasons are cut.

use std::collections::HashMap;

use proto_agent::agent::ConfigurePodResponse;

use crate::text::printable;

/// Most characters kept of a reason: an error and its sources.
const REASON_CHARS_MAX: usize = 256;

/// Most failures kept of each kind. Lists shown to people are shorter.
const FAILURES_MAX: usize = 64;

/// Settings rejected by the guest, by their place in the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayedSettings {
    /// Whether the agent knows such settings. An earlier build ignores them.
    pub known: bool,
    /// Sysctls, with the reason; at most 64.
    pub sysctl_failures: Vec<(usize, String)>,
    /// Tables of nftables, with the reason; at most 64.
    pub nft_failures: Vec<(usize, String)>,
}

impl ReplayedSettings {
    pub(crate) fn of(response: ConfigurePodResponse) -> ReplayedSettings {
        ReplayedSettings {
            known: response.network_settings_known,
            sysctl_failures: bounded(response.sysctl_failures),
            nft_failures: bounded(response.nft_failures),
        }
    }
}

fn bounded(failures: HashMap<u32, String>) -> Vec<(usize, String)> {
    let mut failures: Vec<_> = failures.into_iter().collect();
    failures.sort_unstable();
    failures.truncate(FAILURES_MAX);
    let cut = |(number, why): (u32, String)| (number as usize, printable(&why, REASON_CHARS_MAX));
    failures.into_iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_is_cut_and_in_order() {
        let response = ConfigurePodResponse {
            network_settings_known: true,
            sysctl_failures: (0..1000).map(|number| (number, format!("\n{}", "x".repeat(999)))).collect(),
            ..Default::default()
        };
        let settings = ReplayedSettings::of(response);
        assert_eq!((settings.sysctl_failures.len(), settings.nft_failures.len()), (FAILURES_MAX, 0));
        assert_eq!(settings.sysctl_failures[9], (9, "x".repeat(REASON_CHARS_MAX)));
        assert!(!ReplayedSettings::of(ConfigurePodResponse::default()).known);
    }
}
