//! Versions of the CDI specification, and the additions of each. Pure.
//!
//! A file may use only fields of its own version (SPEC.md, "Released versions"), so that readers of that
//! version understand it.

use crate::document::Document;
use crate::fault::FaultError;

/// A released version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u8, u8, u8);

/// All supported versions, oldest first.
const VERSIONS: [(Version, &str); 8] = [
    (Version(0, 3, 0), "0.3.0"),
    (Version(0, 4, 0), "0.4.0"),
    (Version(0, 5, 0), "0.5.0"),
    (Version(0, 6, 0), "0.6.0"),
    (Version(0, 7, 0), "0.7.0"),
    (Version(0, 8, 0), "0.8.0"),
    (Version(1, 0, 0), "1.0.0"),
    (Version(1, 1, 0), "1.1.0"),
];

/// Refuses an unknown version, and fields or forms of names newer than the file's version.
pub(crate) fn check(document: &Document) -> Result<(), FaultError> {
    let text = document.cdi_version.as_str();
    let bare = text.strip_prefix('v').unwrap_or(text);
    let Some((version, _)) = VERSIONS.iter().find(|(_, name)| *name == bare) else {
        let [(_, oldest), .., (_, newest)] = VERSIONS;
        return Err(FaultError::Version { version: text.to_owned(), oldest, newest });
    };
    for (needed, field) in [
        (Version(1, 1, 0), newer_in_1_1(document)),
        (Version(0, 7, 0), newer_in_0_7(document)),
        (Version(0, 6, 0), newer_in_0_6(document)),
        (Version(0, 5, 0), newer_in_0_5(document)),
        (Version(0, 4, 0), newer_in_0_4(document)),
    ] {
        if let Some(field) = field
            && *version < needed
        {
            let Version(major, minor, patch) = needed;
            let needed = format!("{major}.{minor}.{patch}");
            return Err(FaultError::Newer { field, needed, version: text.to_owned() });
        }
    }
    Ok(())
}

fn newer_in_1_1(document: &Document) -> Option<&'static str> {
    document.all_edits().find_map(|edits| {
        let rdt = edits.intel_rdt.as_ref();
        if rdt.is_some_and(|rdt| rdt.schemata.is_some()) {
            return Some("containerEdits.intelRdt.schemata");
        }
        if rdt.is_some_and(|rdt| rdt.enable_monitoring == Some(true)) {
            return Some("containerEdits.intelRdt.enableMonitoring");
        }
        edits.net_devices.iter().flatten().next().map(|_| "containerEdits.netDevices")
    })
}

fn newer_in_0_7(document: &Document) -> Option<&'static str> {
    document.all_edits().find_map(|edits| {
        if edits.intel_rdt.is_some() {
            return Some("containerEdits.intelRdt");
        }
        edits.additional_gids.iter().flatten().next().map(|_| "containerEdits.additionalGids")
    })
}

fn newer_in_0_6(document: &Document) -> Option<&'static str> {
    let of_devices = document.devices.iter().flatten().map(|device| &device.annotations);
    if of_devices.chain([&document.annotations]).flatten().any(|all| !all.is_empty()) {
        return Some("annotations");
    }
    let (_, class) = document.kind.split_once('/')?;
    class.contains('.').then_some("kind with a dot in its class")
}

fn newer_in_0_5(document: &Document) -> Option<&'static str> {
    let digit = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    if document.devices.iter().flatten().any(|device| digit(&device.name)) {
        return Some("devices.name beginning with a digit");
    }
    let mut nodes = document.all_edits().flat_map(|edits| edits.device_nodes.iter().flatten());
    let named = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    nodes.any(|node| named(&node.host_path)).then_some("containerEdits.deviceNodes.hostPath")
}

fn newer_in_0_4(document: &Document) -> Option<&'static str> {
    let mut mounts = document.all_edits().flat_map(|edits| edits.mounts.iter().flatten());
    let named = |kind: &Option<String>| kind.as_ref().is_some_and(|kind| !kind.is_empty());
    mounts.any(|mount| named(&mount.r#type)).then_some("containerEdits.mounts.type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(version: &str, kind: &str, name: &str, edits: &str) -> Document {
        let text = format!(
            r#"{{"cdiVersion":"{version}","kind":"{kind}","devices":[{{"name":"{name}","containerEdits":{edits}}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_released_version_from_0_3_0_on_is_read() {
        for (_, version) in VERSIONS {
            check(&document(version, "v/c", "d", "{}")).unwrap();
        }
        check(&document("v1.0.0", "v/c", "d", "{}")).unwrap();
        for other in ["", "0.2.0", "1.2.0", "2.0.0", "1.1", "1.1.0-rc1", "1", "one"] {
            let error = check(&document(other, "v/c", "d", "{}")).unwrap_err().to_string();
            assert!(error.contains(&format!("{other:?}")) && error.contains("1.1.0"), "{error}");
        }
    }

    #[test]
    fn a_field_that_came_later_than_the_files_version_is_named_with_its_version() {
        let node = r#"{"deviceNodes":[{"path":"/dev/a","hostPath":"/dev/b"}]}"#;
        for (last_without, first_with, kind, name, edits, words) in [
            (
                "0.3.0",
                "0.4.0",
                "v/c",
                "d",
                r#"{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"none"}]}"#,
                "mounts.type",
            ),
            ("0.4.0", "0.5.0", "v/c", "d", node, "deviceNodes.hostPath"),
            ("0.4.0", "0.5.0", "v/c", "0", "{}", "beginning with a digit"),
            ("0.5.0", "0.6.0", "v/c.d", "d", "{}", "dot in its class"),
            ("0.6.0", "0.7.0", "v/c", "d", r#"{"additionalGids":[5]}"#, "additionalGids"),
            ("0.6.0", "0.7.0", "v/c", "d", r#"{"intelRdt":{"closID":"x"}}"#, "intelRdt"),
            ("1.0.0", "1.1.0", "v/c", "d", r#"{"intelRdt":{"schemata":[]}}"#, "schemata"),
            (
                "1.0.0",
                "1.1.0",
                "v/c",
                "d",
                r#"{"netDevices":[{"hostInterfaceName":"a","name":"b"}]}"#,
                "netDevices",
            ),
        ] {
            check(&document(first_with, kind, name, edits)).unwrap();
            let error = check(&document(last_without, kind, name, edits)).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(first_with), "{error}");
        }
    }
}
