//! Settings made by CNI plugins in the pod's namespace on the node, repeated in the pod's network here. A
//! setting refused by this kernel stops nothing: the response names it, and the daemon decides.

use agent_container::launch::Failure;
use proto_agent::agent::{ConfigurePodRequest, ConfigurePodResponse, Sysctl};

use crate::network::{nft, nft_process};
use crate::sysctl;

/// Writes the request's sysctls and makes its tables.
pub(crate) fn replay(request: &ConfigurePodRequest) -> ConfigurePodResponse {
    let in_user_namespace = request.user_namespace.is_some();
    let mut response = ConfigurePodResponse { network_settings_known: true, ..Default::default() };
    for (number, sysctl) in (0..).zip(&request.network_sysctls) {
        if let Err(why) = write(sysctl) {
            response.sysctl_failures.insert(number, why);
        }
    }
    for (number, table) in (0..).zip(&request.nft_tables) {
        // The kernel accepts a match by user only from the network's user namespace (`owner_check` of
        // net/netfilter/xt_owner.c).
        let made = if in_user_namespace {
            nft_process::make_table(&table.messages)
        } else {
            nft::make_table(&table.messages).map_err(|error| error.to_string())
        };
        if let Err(why) = made {
            response.nft_failures.insert(number, why);
        }
    }
    response
}

/// Writes a sysctl of the network. It belongs to the network's owner.
fn write(sysctl: &Sysctl) -> Result<(), String> {
    let path = sysctl::path(&sysctl.path).filter(|path| path.starts_with("/proc/sys/net"));
    let path = path.ok_or_else(|| "this is no sysctl of the network".to_owned())?;
    sysctl::write(&path, &sysctl.value, 0).map_err(|error| Failure::from_error(&error).message)
}

#[cfg(test)]
mod tests {
    use proto_agent::agent::NftTable;

    use super::*;

    #[test]
    fn settings_that_cannot_be_are_named_by_their_place_and_stop_nothing() {
        let sysctl = |path: &str| Sysctl { path: path.into(), value: "1".into(), ..Default::default() };
        let request = ConfigurePodRequest {
            network_sysctls: vec![sysctl("kernel/hostname"), sysctl("net/ipv4/nowhere"), sysctl("net/../x")],
            nft_tables: vec![NftTable { messages: vec![1, 2, 3], ..Default::default() }],
            ..Default::default()
        };
        let response = replay(&request);
        assert!(response.network_settings_known);
        assert_eq!(response.sysctl_failures[&0], "this is no sysctl of the network");
        assert!(response.sysctl_failures.contains_key(&1) && response.sysctl_failures.contains_key(&2));
        assert_eq!(response.nft_failures[&0], "message 1 of the table is torn");
    }

    #[test]
    fn a_request_without_settings_has_no_failures() {
        let response = replay(&ConfigurePodRequest::default());
        let expected = ConfigurePodResponse { network_settings_known: true, ..Default::default() };
        assert_eq!(response, expected);
    }
}
