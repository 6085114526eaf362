//! The requested network of a pod. Owns the checks that make names safe for plugins.

use std::collections::BTreeMap;

use runtime_spec::{Bandwidth, Dns, PortMapping};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::NetError;

/// Most bytes of a pod's id, name, namespace or uid. Kubernetes' own names have at most 253.
const NAME_BYTES_MAX: usize = 253;

/// One pod's requested network. It is serialized into the cache, so a later DEL passes the same values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodNetworkSpec {
    /// The runtime's own id of the pod: `CNI_CONTAINERID`, and part of file names.
    pub pod_id: String,
    /// The pod's name.
    pub name: String,
    /// The pod's Kubernetes namespace.
    pub namespace: String,
    /// The pod's uid.
    pub uid: String,
    /// Host ports, for plugins with the `portMappings` capability. A host port of 0 means none.
    #[serde(deserialize_with = "without_nulls")]
    pub port_mappings: Vec<PortMapping>,
    /// Limits of the pod's traffic, for plugins with the `bandwidth` capability.
    pub bandwidth: Bandwidth,
    /// The pod's name servers, for plugins with the `dns` capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// The parent cgroup of the pod's, for plugins with the `cgroupPath` capability.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cgroup_parent: String,
    /// The pod's annotations, for plugins with the capability for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Cache files of earlier versions have `null` for a mapping without a host address.
fn without_nulls<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PortMapping>, D::Error> {
    let mut mappings = Vec::<Map<String, Value>>::deserialize(from)?;
    for mapping in &mut mappings {
        mapping.retain(|_, value| !value.is_null());
    }
    serde_json::from_value(mappings.into()).map_err(D::Error::custom)
}

impl PodNetworkSpec {
    /// Refuses values able to change the meaning of a path, an environment variable or `CNI_ARGS`.
    pub(crate) fn check(&self) -> Result<(), NetError> {
        let bad = |field, reason: &str| Err(NetError::Spec { field, reason: reason.to_owned() });
        let id = &self.pod_id;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !id.starts_with(|c: char| c.is_ascii_alphanumeric()) || !id.chars().all(plain) {
            return bad("pod_id", "must be letters, digits, '-', '_' and '.', a letter or digit first");
        }
        for (field, value) in
            [("pod_id", id), ("name", &self.name), ("namespace", &self.namespace), ("uid", &self.uid)]
        {
            if value.len() > NAME_BYTES_MAX {
                return bad(field, "is longer than 253 bytes");
            }
            if value.contains(|c: char| c == ';' || c == '=' || c.is_control()) {
                return bad(field, "must not contain ';', '=' or control characters");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pod_id: &str, name: &str) -> PodNetworkSpec {
        PodNetworkSpec { pod_id: pod_id.into(), name: name.into(), ..Default::default() }
    }

    #[test]
    fn ordinary_names_pass() {
        named("0a1b-c.d_e", "web-0").check().unwrap();
    }

    #[test]
    fn an_id_that_is_a_path_is_refused() {
        for id in ["", "..", "../x", "a/b", ".hidden", "-flag"] {
            assert!(named(id, "web").check().is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_name_that_would_add_cni_args_is_refused() {
        let error = named("a", "web;K8S_POD_UID=0").check().unwrap_err();
        assert!(error.to_string().contains("name"), "{error}");
    }
}
