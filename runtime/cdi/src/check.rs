//! Turns a parsed file into valid edits, or returns the reason for refusing it. Pure. Devices and paths on
//! the node are not checked.

use std::collections::BTreeMap;

use crate::document::{DeviceNodeEntry, Document, EditsEntry, HookEntry, MountEntry};
use crate::edits::{DeviceNode, Edits, Hook, Mount, NodeKind};
use crate::fault::FaultError;
use crate::name::{DeviceName, Kind};
use crate::node::Found;
use crate::version;

/// Stages of a container's life cycle allowed for hooks (OCI runtime specification, "POSIX-platform Hooks").
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// The content of a valid file, without its path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) kind: Kind,
    /// Edits common to all devices of the file.
    pub(crate) edits: Edits,
    /// Edits of each device, by its name.
    pub(crate) devices: BTreeMap<String, Edits>,
}

/// Checks a file.
pub(crate) fn check(document: &Document) -> Result<Checked, FaultError> {
    version::check(document)?;
    let kind: Kind = document.kind.parse().map_err(|error| FaultError::Name { field: "kind", error })?;
    let none = EditsEntry::default();
    let common = edits("containerEdits", document.container_edits.as_ref().unwrap_or(&none))?;
    let mut devices = BTreeMap::new();
    for device in document.devices.iter().flatten() {
        DeviceName::new(kind.clone(), &device.name)
            .map_err(|error| FaultError::Name { field: "devices.name", error })?;
        let place = format!("device {:?}: containerEdits", device.name);
        let own = device.container_edits.as_ref().unwrap_or(&none);
        if own.is_empty() {
            return Err(FaultError::Value { place, reason: "is empty".into() });
        }
        if devices.insert(device.name.clone(), edits(&place, own)?).is_some() {
            return Err(FaultError::TwoDevices(device.name.clone()));
        }
    }
    if devices.is_empty() {
        return Err(FaultError::NoDevices);
    }
    Ok(Checked { kind, edits: common, devices })
}

fn edits(place: &str, entry: &EditsEntry) -> Result<Edits, FaultError> {
    let failed = |field: &str| {
        let place = format!("{place}.{field}");
        move |reason: String| FaultError::Value { place, reason }
    };
    let all = |entry: &Option<Vec<u32>>| entry.iter().flatten().copied().filter(|&gid| gid != 0).collect();
    let names = entry.net_devices.iter().flatten().map(|device| device.host_interface_name.clone());
    Ok(Edits {
        env: each(&entry.env, |entry| variable_of(entry)).map_err(failed("env"))?,
        device_nodes: each(&entry.device_nodes, node_of).map_err(failed("deviceNodes"))?,
        mounts: each(&entry.mounts, mount_of).map_err(failed("mounts"))?,
        hooks: each(&entry.hooks, hook_of).map_err(failed("hooks"))?,
        additional_gids: all(&entry.additional_gids),
        intel_rdt: entry.intel_rdt.is_some(),
        net_devices: names.collect(),
    })
}

fn each<T, U>(entries: &Option<Vec<T>>, convert: impl Fn(&T) -> Result<U, String>) -> Result<Vec<U>, String> {
    entries.iter().flatten().map(convert).collect()
}

fn variable_of(entry: &str) -> Result<(String, String), String> {
    match entry.split_once('=') {
        Some((name, value)) if !name.is_empty() && !entry.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("{entry:?} is no variable, NAME=VALUE")),
    }
}

fn node_of(entry: &DeviceNodeEntry) -> Result<DeviceNode, String> {
    let path = path("path", &entry.path)?;
    let host_path = match entry.host_path.as_deref() {
        None | Some("") => path.clone(),
        Some(host_path) => self::path("hostPath", host_path)?,
    };
    let kind = match entry.r#type.as_deref().unwrap_or_default() {
        "" => None,
        "b" => Some(NodeKind::Block),
        "c" | "u" => Some(NodeKind::Character),
        "p" => Some(NodeKind::Pipe),
        other => return Err(format!("type {other:?} of {path}: must be b, c, u or p")),
    };
    let permissions = match entry.permissions.as_deref().unwrap_or_default() {
        "" => "rwm",
        "none" => "",
        some if some.chars().all(|letter| "rwm".contains(letter)) => some,
        other => return Err(format!("permissions {other:?} of {path}: must be none, or some of r, w and m")),
    };
    // Files use zero for "no number".
    let numbers = match (entry.major.unwrap_or(0), entry.minor.unwrap_or(0)) {
        (0, 0) => None,
        numbers => Some(numbers),
    };
    Ok(DeviceNode {
        path,
        host_path,
        kind,
        numbers,
        file_mode: entry.file_mode,
        permissions: permissions.to_owned(),
        uid: entry.uid,
        gid: entry.gid,
        found: Found::Unseen,
    })
}

fn mount_of(entry: &MountEntry) -> Result<Mount, String> {
    if entry.host_path.is_empty() || entry.host_path.contains('\0') {
        return Err(format!("hostPath {:?} is no path", entry.host_path));
    }
    Ok(Mount {
        host_path: entry.host_path.clone(),
        container_path: path("containerPath", &entry.container_path)?,
        kind: entry.r#type.clone().unwrap_or_default(),
        options: entry.options.clone().unwrap_or_default(),
    })
}

fn hook_of(entry: &HookEntry) -> Result<Hook, String> {
    if !HOOKS.contains(&entry.hook_name.as_str()) {
        return Err(format!("hookName {:?} is none of {}", entry.hook_name, HOOKS.join(", ")));
    }
    Ok(Hook { name: entry.hook_name.clone(), path: path("path", &entry.path)? })
}

fn path(field: &str, path: &str) -> Result<String, String> {
    if path.starts_with('/') && !path.contains('\0') {
        Ok(path.to_owned())
    } else {
        Err(format!("{field} {path:?} is no absolute path"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(devices: &str, edits: &str) -> Result<Checked, String> {
        let text = format!(
            r#"{{"cdiVersion":"1.1.0","kind":"v.com/c","devices":{devices},"containerEdits":{edits}}}"#
        );
        check(&serde_json::from_str(&text).unwrap()).map_err(|error| error.to_string())
    }

    fn device(edits: &str) -> Result<Edits, String> {
        let checked = checked(&format!(r#"[{{"name":"d","containerEdits":{edits}}}]"#), "{}")?;
        Ok(checked.devices["d"].clone())
    }

    #[test]
    fn edits_of_the_file_and_of_its_devices_are_kept_apart() {
        let devices = r#"[{"name":"a","containerEdits":{"env":["A=1=2"]}},{"name":"b","containerEdits":{"additionalGids":[0,5]}}]"#;
        let checked = checked(devices, r#"{"env":["ALL="]}"#).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(checked.edits.env, [pair("ALL", "")]);
        assert_eq!(checked.devices["a"].env, [pair("A", "1=2")]);
        assert_eq!(checked.devices["b"].additional_gids, [5]);
        assert!(checked.devices["b"].env.is_empty());
    }

    #[test]
    fn a_device_node_has_the_files_defaults() {
        let node = |text: &str| {
            let edits = device(&format!(r#"{{"deviceNodes":[{text}]}}"#))?;
            Ok::<_, String>(edits.device_nodes[0].clone())
        };
        let least = node(r#"{"path":"/dev/a"}"#).unwrap();
        assert_eq!((least.host_path.as_str(), least.permissions.as_str()), ("/dev/a", "rwm"));
        assert_eq!((least.kind, least.numbers, least.uid, least.file_mode), (None, None, None, None));
        let full = r#"{"path":"/dev/a","hostPath":"/dev/b","type":"u","major":10,"minor":229,"fileMode":432,"permissions":"none","uid":7,"gid":8}"#;
        let full = node(full).unwrap();
        assert_eq!((full.host_path.as_str(), full.kind), ("/dev/b", Some(NodeKind::Character)));
        assert_eq!((full.numbers, full.permissions.as_str()), (Some((10, 229)), ""));
        assert_eq!((full.file_mode, full.uid, full.gid), (Some(0o660), Some(7), Some(8)));
        for (bad, words) in [
            (r#"{"path":"dev/a"}"#, "deviceNodes: path \"dev/a\""),
            (r#"{"path":"/dev/a","hostPath":"b"}"#, "hostPath \"b\""),
            (r#"{"path":"/dev/a","type":"x"}"#, "type \"x\" of /dev/a"),
            (r#"{"path":"/dev/a","permissions":"rx"}"#, "permissions \"rx\" of /dev/a"),
        ] {
            let error = node(bad).unwrap_err();
            assert!(error.starts_with("device \"d\": ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn values_that_make_no_sense_are_named_with_device_and_field() {
        for (bad, words) in [
            (r#"{"env":["A"]}"#, "containerEdits.env: \"A\""),
            (r#"{"env":["=x"]}"#, "containerEdits.env: \"=x\""),
            (r#"{"env":["A=\u0000"]}"#, "containerEdits.env"),
            (r#"{"mounts":[{"hostPath":"","containerPath":"/a"}]}"#, "mounts: hostPath"),
            (r#"{"mounts":[{"hostPath":"/a","containerPath":"a"}]}"#, "mounts: containerPath"),
            (r#"{"hooks":[{"hookName":"later","path":"/bin/a"}]}"#, "hooks: hookName \"later\""),
            (r#"{"hooks":[{"hookName":"poststop","path":"a"}]}"#, "hooks: path \"a\""),
            ("{}", "is empty"),
            (r#"{"env":[]}"#, "is empty"),
        ] {
            let error = device(bad).unwrap_err();
            assert!(error.starts_with("device \"d\": ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_file_needs_devices_and_each_once() {
        let one = r#"{"name":"a","containerEdits":{"env":["A=1"]}}"#;
        assert_eq!(checked("[]", "{}").unwrap_err(), "devices: there is none");
        assert_eq!(checked("null", "null").unwrap_err(), "devices: there is none");
        assert_eq!(checked(&format!("[{one},{one}]"), "{}").unwrap_err(), "devices: \"a\" is there twice");
        let odd = r#"[{"name":"-a","containerEdits":{"env":["A=1"]}}]"#;
        assert!(checked(odd, "{}").unwrap_err().starts_with("devices.name: the name \"-a\""));
    }
}
