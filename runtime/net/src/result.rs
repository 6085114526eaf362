//! Reads the answer to ADD: leniently, since plugins differ, but nothing that is used later goes unchecked. Owns
//! the result's form.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The parts of a CNI result (0.3.0 to 1.1.0) that a pod needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CniResult {
    #[serde(deserialize_with = "or_default")]
    interfaces: Vec<Interface>,
    #[serde(deserialize_with = "or_default")]
    ips: Vec<Ip>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    name: String,
    #[serde(deserialize_with = "or_default")]
    sandbox: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ip {
    address: String,
    interface: Option<usize>,
}

/// The parts of ADD's result that the pod needs, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AddResult {
    /// Names of the interfaces inside the pod's namespace.
    pub(crate) interfaces: Vec<String>,
    /// The pod's addresses, in the plugins' order.
    pub(crate) ips: Vec<IpAddr>,
}

/// Reads the last plugin's answer. The error says what is wrong with it.
pub(crate) fn read(answer: &Value) -> Result<AddResult, String> {
    let result = CniResult::deserialize(answer).map_err(|error| format!("its result is not one: {error}"))?;
    let inside = |number: usize| result.interfaces.get(number).is_none_or(|link| !link.sandbox.is_empty());
    let mut ips = Vec::new();
    for ip in &result.ips {
        let address = ip.address.split('/').next().unwrap_or_default();
        let address = address.parse().map_err(|_| format!("its result has address {:?}", ip.address))?;
        // An address of one of the host's interfaces (the bridge's, say) is not the pod's.
        if ip.interface.is_none_or(inside) {
            ips.push(address);
        }
    }
    let in_sandbox = result.interfaces.iter().filter(|link| !link.sandbox.is_empty() && link.name != "lo");
    Ok(AddResult { interfaces: in_sandbox.map(|link| link.name.clone()).collect(), ips })
}

/// Go's encoders write `null` for what is empty.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_and_addresses_of_the_host_are_left_out() {
        let result = read(&json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "cni0", "mac": "00:11:22:33:44:55"},
                {"name": "veth1"},
                {"name": "eth0", "sandbox": "/run/netns/x"},
            ],
            "ips": [
                {"address": "10.88.0.5/16", "gateway": "10.88.0.1", "interface": 2},
                {"address": "10.88.0.1/16", "interface": 0},
                {"address": "fd00::5/64", "interface": 2},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "unknown": {"to": "us"},
        }))
        .unwrap();
        assert_eq!(result.interfaces, ["eth0"]);
        assert_eq!(result.ips, ["10.88.0.5".parse::<IpAddr>().unwrap(), "fd00::5".parse().unwrap()]);
    }

    #[test]
    fn nulls_are_as_good_as_absent() {
        let result = read(&json!({"interfaces": null, "ips": null})).unwrap();
        assert_eq!(result, AddResult { interfaces: vec![], ips: vec![] });
    }

    #[test]
    fn an_address_that_is_none_is_an_error() {
        let error = read(&json!({"ips": [{"address": "ten"}]})).unwrap_err();
        assert!(error.contains("ten"), "{error}");
    }

    #[test]
    fn a_result_of_another_shape_is_an_error() {
        assert!(read(&json!([1, 2])).is_err());
        assert!(read(&json!({"ips": "10.0.0.1"})).is_err());
    }
}
