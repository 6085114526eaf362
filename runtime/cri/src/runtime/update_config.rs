//! UpdateRuntimeConfig: the node's ranges of pod addresses, one for each address family.

use std::net::IpAddr;
use std::sync::Arc;

use proto_cri::v1;

use crate::blocking::NODE;
use crate::error::Failure;
use crate::serve::Cri;

/// Most ranges accepted. A node has one of each address family.
const RANGES_MAX: usize = 16;

pub(crate) async fn update_config(
    cri: &Cri,
    request: v1::UpdateRuntimeConfigRequest,
) -> Result<v1::UpdateRuntimeConfigResponse, Failure> {
    let network = request.runtime_config.unwrap_or_default().network_config.unwrap_or_default();
    let ranges = ranges(&network.pod_cidr)?;
    if !ranges.is_empty() {
        let node = Arc::clone(&cri.node);
        let set = move || node.network.set_pod_ranges(&ranges);
        NODE.run(set).await?.map_err(Failure::Node)?;
    }
    Ok(v1::UpdateRuntimeConfigResponse {})
}

/// `10.1.0.0/24`, or several of these separated by commas (kubelet `Node.spec.podCIDRs`). Empty if the node
/// has none yet.
fn ranges(text: &str) -> Result<Vec<String>, Failure> {
    let ranges: Vec<String> =
        text.split(',').map(str::trim).filter(|range| !range.is_empty()).map(str::to_owned).collect();
    match ranges.iter().find(|range| !is_range(range)) {
        Some(wrong) => {
            Err(Failure::invalid(format!("network_config.pod_cidr: {wrong:?} is no range of addresses")))
        }
        None if ranges.len() > RANGES_MAX => {
            Err(Failure::invalid(format!("network_config.pod_cidr: more than {RANGES_MAX} ranges")))
        }
        None => Ok(ranges),
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    // No sign and no leading zero: other programs read the file written from this.
    let plain =
        length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let Some(length) = length.parse::<u8>().ok().filter(|_| plain) else { return false };
    match address.parse() {
        Ok(IpAddr::V4(_)) => length <= 32,
        Ok(IpAddr::V6(_)) => length <= 128,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_one_of_each_family_is_taken() {
        assert_eq!(ranges("10.1.0.0/24").unwrap(), ["10.1.0.0/24"]);
        assert_eq!(ranges("10.1.0.0/24, fd00:1::/64").unwrap(), ["10.1.0.0/24", "fd00:1::/64"]);
        assert!(ranges("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_range_is_refused_by_the_fields_name() {
        for wrong in
            ["10.1.0.0", "10.1.0.0/33", "10.1.0.0/+8", "10.1.0.0/08", "x/24", "fd00::/129", "10.1.0.0/"]
        {
            let error = ranges(wrong).unwrap_err().to_string();
            assert!(error.contains("pod_cidr") && error.contains(wrong), "{error}");
        }
        assert!(ranges(&vec!["10.0.0.0/8"; 17].join(",")).is_err());
    }
}
