//! Applies plugins' adjustments to a container's spec.

use proto_nri::nri::{ContainerAdjustment, KeyValue, LinuxContainerAdjustment, POSIXRlimit};
use proto_nri::without_mark;
use runtime_cdi::{DeviceName, DeviceNode, Edits, Mount, Origin};
use runtime_spec::{ContainerSpec, ProcessLimit};

use super::device::nodes;
use super::plugins::NriPlugins;
use super::resources::resources_in;
use super::unsupported;
use crate::blocking::CDI;
use crate::container::create::edits;
use crate::convert::cdi;
use crate::error::Failure;

/// The container as adjusted by plugins. As for a kubelet's request, its plan's resolution checks for
/// unsupported values.
pub(super) async fn adjusted(
    spec: &ContainerSpec,
    adjustment: ContainerAdjustment,
    nri: &NriPlugins,
) -> Result<ContainerSpec, Failure> {
    let mut fields = unsupported::fields(&adjustment);
    let (resources, unsupported) = resources_in(&adjustment.linux.resources);
    fields.extend(unsupported);
    nri.unsupported.judge(&spec.name, fields).map_err(Failure::Invalid)?;
    let names = adjustment.CDI_devices.iter().map(|device| {
        device.name.parse::<DeviceName>().map_err(|error| Failure::invalid(format!("CDI_devices: {error}")))
    });
    let names: Vec<_> = names.collect::<Result<_, _>>()?;
    let of_cdi = match names.is_empty() {
        true => Vec::new(),
        false => edits(&CDI, &nri.cdi, names).await?,
    };
    let devices = nodes(&CDI, adjustment.linux.devices.clone()).await?;
    let mut spec = spec.clone();
    spec.resources = spec.resources.merged(&resources);
    put(&mut spec, adjustment, of_cdi, devices)?;
    Ok(spec)
}

/// Applies the parts with a direct counterpart in the spec.
fn put(
    spec: &mut ContainerSpec,
    adjustment: ContainerAdjustment,
    of_cdi: Vec<(Origin, Edits)>,
    devices: Vec<DeviceNode>,
) -> Result<(), Failure> {
    let ContainerAdjustment { annotations, mounts, env, linux, rlimits, args, .. } = adjustment;
    let (removed, set): (Vec<_>, Vec<_>) = annotations.into_iter().partition(|(key, _)| without_mark(key).1);
    // The kubelet's annotations stay: it finds its containers by them.
    for (key, _) in removed {
        spec.plugin_annotations.remove(without_mark(&key).0);
    }
    spec.plugin_annotations.extend(set);
    variables(spec, env);
    if !args.is_empty() {
        (spec.command, spec.args) = (args, Vec::new());
    }
    cdi::apply(spec, of_cdi)?;
    let linux: LinuxContainerAdjustment = linux.unwrap_or_default();
    for (path, _) in
        linux.devices.iter().map(|device| without_mark(&device.path)).filter(|(_, marked)| *marked)
    {
        spec.devices.retain(|device| device.container_path != path);
    }
    for node in devices {
        cdi::put_device(spec, &node)
            .map_err(|reason| Failure::invalid(format!("linux.devices: {reason}")))?;
    }
    if let Some(score) = linux.oom_score_adj.as_ref() {
        spec.resources.oom_score_adj = score.value;
    }
    for limit in rlimits {
        let POSIXRlimit { type_: name, soft, hard, .. } = limit;
        spec.process_limits.retain(|known| known.name != name);
        spec.process_limits.push(ProcessLimit { name, soft, hard });
    }
    let (removed, added): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| without_mark(&mount.destination).1);
    for mount in removed {
        cdi::clear_mounts(spec, without_mark(&mount.destination).0);
    }
    for mount in added {
        let mount = Mount {
            host_path: mount.source,
            container_path: mount.destination,
            kind: mount.type_,
            options: mount.options,
        };
        cdi::put_mount(spec, mount).map_err(|reason| Failure::invalid(format!("mounts: {reason}")))?;
    }
    Ok(())
}

/// Removes variables, then sets others.
fn variables(spec: &mut ContainerSpec, env: Vec<KeyValue>) {
    let (removed, set): (Vec<_>, Vec<_>) = env.into_iter().partition(|entry| without_mark(&entry.key).1);
    for entry in removed {
        let name = without_mark(&entry.key).0.to_owned();
        spec.env.retain(|(key, _)| *key != name);
        if !spec.unset_env.contains(&name) {
            spec.unset_env.push(name);
        }
    }
    for KeyValue { key, value, .. } in set {
        spec.env.retain(|(known, _)| *known != key);
        spec.env.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proto_nri::nri::{CDIDevice, LinuxDevice, LinuxPids, Mount, OptionalInt};
    use runtime_nri::NriConfig;

    use super::*;
    use crate::nri::UnsupportedAdjustments;

    async fn adjust(spec: &ContainerSpec, adjustment: ContainerAdjustment) -> Result<ContainerSpec, String> {
        let config = NriConfig {
            runtime_name: String::new(),
            runtime_version: String::new(),
            socket: None,
            plugin_dir: "/nowhere".into(),
            plugin_conf_dir: "/nowhere".into(),
            registration_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
        };
        let nri = NriPlugins::new(config, UnsupportedAdjustments::Refuse);
        adjusted(spec, adjustment, &nri).await.map_err(|failure| failure.to_string())
    }

    fn mount(destination: &str, source: &str, kind: &str) -> Mount {
        Mount {
            destination: destination.into(),
            source: source.into(),
            type_: kind.into(),
            options: vec!["ro".into()],
            ..Default::default()
        }
    }

    fn variable(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), ..Default::default() }
    }

    #[tokio::test]
    async fn what_plugins_ask_for_is_in_the_spec() {
        let spec = ContainerSpec {
            command: vec!["sh".into()],
            args: vec!["-c".into()],
            env: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            mounts: vec![runtime_spec::Mount { container_path: "/old".into(), ..Default::default() }],
            annotations: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        };
        let mut adjustment = ContainerAdjustment {
            args: vec!["ls".into(), "-l".into()],
            env: vec![variable("-A", ""), variable("B", "9"), variable("N", "n")],
            mounts: vec![mount("-/old", "", ""), mount("/new", "/h", "bind"), mount("/t", "tmpfs", "tmpfs")],
            rlimits: vec![POSIXRlimit {
                type_: "RLIMIT_CORE".into(),
                hard: 2,
                soft: 1,
                ..Default::default()
            }],
            ..Default::default()
        };
        adjustment.annotations.insert("k".into(), "plugin".into());
        let linux = adjustment.linux.mut_or_insert_default();
        linux.oom_score_adj = Some(OptionalInt { value: 500, ..Default::default() }).into();
        let pids = LinuxPids { limit: 10, ..Default::default() };
        linux.resources.mut_or_insert_default().pids = Some(pids).into();
        let fuse = LinuxDevice {
            path: "/dev/fuse".into(),
            type_: "c".into(),
            major: 10,
            minor: 229,
            ..Default::default()
        };
        linux.devices = vec![fuse];
        let adjusted = adjust(&spec, adjustment).await.unwrap();
        assert_eq!((adjusted.command.join(" "), adjusted.args.len()), ("ls -l".to_owned(), 0));
        assert_eq!(adjusted.env, [("B".to_owned(), "9".to_owned()), ("N".to_owned(), "n".to_owned())]);
        assert_eq!(adjusted.unset_env, ["A"]);
        assert_eq!(adjusted.mounts.len(), 1);
        assert_eq!((adjusted.mounts[0].host_path.as_str(), adjusted.mounts[0].readonly), ("/h", true));
        assert_eq!(adjusted.tmpfs[0].container_path, "/t");
        assert_eq!(
            (adjusted.annotations["k"].as_str(), adjusted.plugin_annotations["k"].as_str()),
            ("v", "plugin")
        );
        assert_eq!((adjusted.resources.pids_limit, adjusted.resources.oom_score_adj), (10, 500));
        assert_eq!(adjusted.process_limits[0].name, "RLIMIT_CORE");
        assert_eq!(adjusted.devices[0].host_path, "/dev/fuse");
    }

    #[tokio::test]
    async fn annotations_are_removed_before_others_are_set() {
        let pairs = |mark: &str, value: &str| {
            let pair = |number: usize| (format!("{mark}k{number}"), value.to_owned());
            (0..32).map(pair).collect::<BTreeMap<_, _>>()
        };
        let mut annotations = pairs("", "old");
        annotations.insert("other".into(), "old".into());
        let spec = ContainerSpec { plugin_annotations: annotations, ..Default::default() };
        let mut adjustment = ContainerAdjustment::new();
        adjustment.annotations.extend(pairs("-", ""));
        let removed = adjust(&spec, adjustment.clone()).await.unwrap().plugin_annotations;
        assert_eq!(removed.into_keys().collect::<Vec<_>>(), ["other"]);
        adjustment.annotations.extend(pairs("", "new"));
        let adjusted = adjust(&spec, adjustment).await.unwrap().plugin_annotations;
        assert_eq!(adjusted.values().filter(|value| *value == "new").count(), 32);
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_by_the_fields_name() {
        let spec = ContainerSpec::default();
        let linux = |device: LinuxDevice| {
            let linux = LinuxContainerAdjustment { devices: vec![device], ..Default::default() };
            ContainerAdjustment { linux: Some(linux).into(), ..Default::default() }
        };
        let other = LinuxDevice {
            path: "/dev/fuse".into(),
            type_: "c".into(),
            major: 1,
            minor: 2,
            ..Default::default()
        };
        let cdi = CDIDevice { name: "no name".into(), ..Default::default() };
        for (adjustment, words) in [
            (
                ContainerAdjustment { mounts: vec![mount("/c", "/h", "ext4")], ..Default::default() },
                "mounts: type \"ext4\"",
            ),
            (linux(other), "linux.devices: /dev/fuse is the device 10:229"),
            (ContainerAdjustment { CDI_devices: vec![cdi], ..Default::default() }, "CDI_devices: "),
        ] {
            let refused = adjust(&spec, adjustment).await.unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(adjust(&spec, ContainerAdjustment::new()).await.unwrap(), spec);
    }
}
