//! Reads the answer to ADD. Parsing is lenient, because plugins differ, but every value used later is
//! checked. Owns the result's form.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::VERSIONS;

/// The versions whose results have one address per family and no interfaces.
const OLD: [&str; 2] = ["0.1.0", "0.2.0"];

/// The parts of a CNI result needed by a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CniResult {
    #[serde(deserialize_with = "or_default")]
    interfaces: Vec<Interface>,
    #[serde(deserialize_with = "or_default")]
    ips: Vec<Ip>,
    ip4: Option<OldIp>,
    ip6: Option<OldIp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    sandbox: String,
    /// The socket of an interface outside the kernel (1.1.0).
    #[serde(rename = "socketPath", deserialize_with = "or_default")]
    socket_path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ip {
    #[serde(deserialize_with = "or_default")]
    address: String,
    /// Plugins of 2017 write -1 here for none.
    interface: Option<i64>,
}

/// An address before 0.3.0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldIp {
    #[serde(deserialize_with = "or_default")]
    ip: String,
}

/// The checked parts of ADD's result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AddResult {
    /// Names of the interfaces inside the pod's namespace.
    pub(crate) interfaces: Vec<String>,
    /// Names of socket interfaces. VMs do not get them.
    pub(crate) sockets: Vec<String>,
    /// The pod's addresses in the plugins' order, except for the first: it is an IPv4 address if there is
    /// one.
    pub(crate) ips: Vec<IpAddr>,
}

/// Reads the last plugin's answer; its version is set. `first` is the pod's first interface. The error
/// describes the problem with the answer.
pub(crate) fn read(answer: &Value, first: &str) -> Result<AddResult, String> {
    let version = answer["cniVersion"].as_str().unwrap_or_default();
    if !VERSIONS.contains(&version) {
        return Err(format!("its result has the cniVersion {version:?}; known are {}", VERSIONS.join(", ")));
    }
    let result = CniResult::deserialize(answer).map_err(|error| format!("its result is not one: {error}"))?;
    let mut found = match OLD.contains(&version) {
        true => old_addresses(&result)?,
        false => addresses(&result, first)?,
    };
    // As in other runtimes, for clients knowing only one address of a pod.
    if let Some(at) = found.iter().position(IpAddr::is_ipv4) {
        found[..=at].rotate_right(1);
    }
    let in_sandbox =
        result.interfaces.iter().filter(|link| is_pods(link, &result, first) && link.name != "lo");
    let (sockets, links): (Vec<_>, Vec<_>) = in_sandbox.partition(|link| !link.socket_path.is_empty());
    let names = |links: Vec<&Interface>| links.into_iter().map(|link| link.name.clone()).collect();
    Ok(AddResult { interfaces: names(links), sockets: names(sockets), ips: found })
}

/// Returns true if a link is in the pod's namespace. Some plugins leave `sandbox` out, and the first
/// interface is known by its name, as in other runtimes.
fn is_pods(link: &Interface, result: &CniResult, first: &str) -> bool {
    let is_first = |link: &Interface| link.name == first;
    let has_sandbox = |link: &Interface| !link.sandbox.is_empty();
    has_sandbox(link)
        || (is_first(link) && !result.interfaces.iter().any(|other| is_first(other) && has_sandbox(other)))
}

fn address(text: &str) -> Result<IpAddr, String> {
    let address = text.split('/').next().unwrap_or_default();
    address.parse().map_err(|_| format!("its result has address {text:?}"))
}

fn old_addresses(result: &CniResult) -> Result<Vec<IpAddr>, String> {
    [&result.ip4, &result.ip6].into_iter().flatten().map(|ip| address(&ip.ip)).collect()
}

/// The addresses of the first interface, as other runtimes report them. If it has none, those of all
/// interfaces.
fn addresses(result: &CniResult, first: &str) -> Result<Vec<IpAddr>, String> {
    let (mut of_first, mut of_all) = (Vec::new(), Vec::new());
    for ip in &result.ips {
        let address = address(&ip.address)?;
        let number = ip.interface.and_then(|number| usize::try_from(number).ok());
        let link = number.and_then(|number| result.interfaces.get(number));
        // An address of a host interface, such as the bridge, is not the pod's.
        if link.is_some_and(|link| !is_pods(link, result, first)) {
            continue;
        }
        of_all.push(address);
        if link.is_none_or(|link| link.name == first) {
            of_first.push(address);
        }
    }
    Ok(if of_first.is_empty() { of_all } else { of_first })
}

/// Go's encoders write `null` for empty values.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ips(result: &Value) -> Vec<String> {
        read(result, "eth0").unwrap().ips.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn interfaces_and_addresses_of_the_host_are_left_out() {
        let result = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "cni0", "mac": "00:11:22:33:44:55"},
                {"name": "veth1", "mtu": 1400, "socketPath": "", "pciID": null},
                {"name": "eth0", "sandbox": "/run/netns/x"},
            ],
            "ips": [
                {"address": "10.88.0.5/16", "gateway": "10.88.0.1", "interface": 2},
                {"address": "10.88.0.1/16", "interface": 0},
                {"address": "fd00::5/64", "interface": 2},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "unknown": {"to": "us"},
        });
        assert_eq!(read(&result, "eth0").unwrap().interfaces, ["eth0"]);
        assert_eq!(ips(&result), ["10.88.0.5", "fd00::5"]);
    }

    #[test]
    fn every_version_has_its_addresses() {
        for version in ["0.1.0", "0.2.0"] {
            let old = json!({
                "cniVersion": version,
                "ip4": {"ip": "10.1.2.3/16", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": null}]},
                "ip6": {"ip": "fd00::3/64"},
                "ips": [{"address": "10.9.9.9/8"}],
                "dns": {},
            });
            assert_eq!(ips(&old), ["10.1.2.3", "fd00::3"]);
            assert_eq!(
                ips(&json!({"cniVersion": version, "ip4": null, "ip6": {"ip": "fd00::3/64"}})),
                ["fd00::3"]
            );
            let wrong = read(&json!({"cniVersion": version, "ip4": {"ip": "ten"}}), "eth0").unwrap_err();
            assert_eq!(wrong, "its result has address \"ten\"");
        }
        for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let new = json!({
                "cniVersion": version,
                "ip4": {"ip": "10.9.9.9/8"},
                "ips": [
                    {"version": "6", "address": "fd00::3/64", "interface": -1},
                    {"version": "4", "address": "10.1.2.3/16", "interface": null},
                ],
            });
            assert_eq!(ips(&new), ["10.1.2.3", "fd00::3"], "one of IPv4 is first");
        }
        for version in [json!("2.0.0"), json!(""), json!(null), json!(1)] {
            let wrong = read(&json!({"cniVersion": version}), "eth0").unwrap_err();
            assert!(wrong.contains("known are 0.1.0, 0.2.0"), "{wrong}");
        }
    }

    #[test]
    fn the_first_interface_says_which_addresses_are_the_pods() {
        let with = |first: &str| {
            json!({
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "net1", "sandbox": "/x"}, {"name": first, "sandbox": "/x"}],
                "ips": [{"address": "10.2.0.1/16", "interface": 0}, {"address": "10.1.0.1/16", "interface": 1}],
            })
        };
        assert_eq!(ips(&with("eth0")), ["10.1.0.1"]);
        assert_eq!(ips(&with("net2")), ["10.2.0.1", "10.1.0.1"]);
    }

    /// The AWS VPC plugin's result: it notes a number for its own DEL as an interface.
    #[test]
    fn the_first_interface_is_known_by_its_name_without_a_sandbox() {
        let with = |sandbox: &str| {
            json!({
                "cniVersion": "0.4.0",
                "interfaces": [
                    {"name": "eni1"}, {"name": "eth0", "sandbox": sandbox}, {"name": "dummy1", "mac": "0", "sandbox": "5"},
                ],
                "ips": [{"address": "10.1.2.3/32", "interface": 1, "version": "4"}, {"address": "10.9.9.9/8", "interface": 0}],
            })
        };
        for sandbox in ["", "/run/netns/x"] {
            assert_eq!(ips(&with(sandbox)), ["10.1.2.3"]);
            assert_eq!(read(&with(sandbox), "eth0").unwrap().interfaces, ["eth0", "dummy1"]);
        }
        // Both ends may have the name, and one says that it is the pod's.
        let both = json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0"}, {"name": "eth0", "sandbox": "/x"}],
            "ips": [{"address": "192.0.2.1/24", "interface": 0}, {"address": "10.1.2.3/32", "interface": 1}],
        });
        assert_eq!(ips(&both), ["10.1.2.3"]);
    }

    #[test]
    fn nulls_are_as_good_as_absent() {
        let result = read(&json!({"cniVersion": "1.0.0", "interfaces": null, "ips": null}), "eth0").unwrap();
        assert_eq!(result, AddResult { interfaces: vec![], sockets: vec![], ips: vec![] });
    }

    #[test]
    fn an_interface_that_is_a_socket_is_none_of_the_namespace() {
        let link = |name, path| json!({"name": name, "sandbox": "/x", "socketPath": path});
        let links = [link("eth0", json!(null)), link("net1", json!("/run/vhost.sock"))];
        let result = read(&json!({"cniVersion": "1.1.0", "interfaces": links}), "eth0").unwrap();
        assert_eq!((result.interfaces, result.sockets), (vec!["eth0".to_owned()], vec!["net1".to_owned()]));
    }

    #[test]
    fn an_address_that_is_none_is_an_error() {
        let error = read(&json!({"cniVersion": "1.0.0", "ips": [{"address": "ten"}]}), "eth0").unwrap_err();
        assert!(error.contains("ten"), "{error}");
    }

    #[test]
    fn a_result_of_another_shape_is_an_error() {
        assert!(read(&json!([1, 2]), "eth0").is_err());
        assert!(read(&json!({"cniVersion": "1.0.0", "ips": "10.0.0.1"}), "eth0").is_err());
    }
}
