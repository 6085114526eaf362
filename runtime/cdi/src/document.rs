//! A CDI file as written: fields and their types, by name (the CDI specification, "CDI JSON Specification").
//! Unknown fields are refused. A `null` field counts as absent, as in the CDI library. `check.rs` checks the
//! values.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) cdi_version: String,
    pub(crate) kind: String,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) devices: Option<Vec<DeviceEntry>>,
    pub(crate) container_edits: Option<EditsEntry>,
}

/// The one field read from a file with a fault, if it is readable.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DeviceEntry {
    pub(crate) name: String,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) container_edits: Option<EditsEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct EditsEntry {
    pub(crate) env: Option<Vec<String>>,
    pub(crate) device_nodes: Option<Vec<DeviceNodeEntry>>,
    pub(crate) net_devices: Option<Vec<NetDeviceEntry>>,
    pub(crate) hooks: Option<Vec<HookEntry>>,
    pub(crate) mounts: Option<Vec<MountEntry>>,
    pub(crate) intel_rdt: Option<IntelRdtEntry>,
    // The specification uses both spellings.
    #[serde(alias = "additionalGIDs")]
    pub(crate) additional_gids: Option<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DeviceNodeEntry {
    pub(crate) path: String,
    pub(crate) host_path: Option<String>,
    pub(crate) r#type: Option<String>,
    pub(crate) major: Option<i64>,
    pub(crate) minor: Option<i64>,
    pub(crate) file_mode: Option<u32>,
    pub(crate) permissions: Option<String>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct MountEntry {
    pub(crate) host_path: String,
    pub(crate) container_path: String,
    pub(crate) r#type: Option<String>,
    pub(crate) options: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct HookEntry {
    pub(crate) hook_name: String,
    pub(crate) path: String,
    #[serde(rename = "args")]
    pub(crate) _args: Option<Vec<String>>,
    #[serde(rename = "env")]
    pub(crate) _env: Option<Vec<String>>,
    #[serde(rename = "timeout")]
    pub(crate) _timeout: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct IntelRdtEntry {
    #[serde(rename = "closID")]
    pub(crate) _clos_id: Option<String>,
    #[serde(rename = "l3CacheSchema")]
    pub(crate) _l3_cache_schema: Option<String>,
    #[serde(rename = "memBwSchema")]
    pub(crate) _mem_bw_schema: Option<String>,
    pub(crate) schemata: Option<Vec<String>>,
    pub(crate) enable_monitoring: Option<bool>,
    // Fields from before 1.1.0.
    #[serde(rename = "enableCMT")]
    pub(crate) _enable_cmt: Option<bool>,
    #[serde(rename = "enableMBM")]
    pub(crate) _enable_mbm: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NetDeviceEntry {
    pub(crate) host_interface_name: String,
    #[serde(rename = "name")]
    pub(crate) _name: String,
}

impl Document {
    /// The edits of the file as a whole, then those of each device.
    pub(crate) fn all_edits(&self) -> impl Iterator<Item = &EditsEntry> {
        let of_devices = self.devices.iter().flatten().filter_map(|device| device.container_edits.as_ref());
        self.container_edits.iter().chain(of_devices)
    }
}

impl EditsEntry {
    /// Returns true without any edits.
    pub(crate) fn is_empty(&self) -> bool {
        let EditsEntry { env, device_nodes, net_devices, hooks, mounts, intel_rdt, additional_gids } = self;
        intel_rdt.is_none()
            && env.iter().flatten().next().is_none()
            && device_nodes.iter().flatten().next().is_none()
            && net_devices.iter().flatten().next().is_none()
            && hooks.iter().flatten().next().is_none()
            && mounts.iter().flatten().next().is_none()
            && additional_gids.iter().flatten().next().is_none()
    }
}
