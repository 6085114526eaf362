//! CDI devices of a container: their names in a `ContainerConfig`, and the application of their edits to a
//! [`ContainerSpec`]. Pure: `runtime/cdi` resolves the names.
//!
//! An edit impossible for a container in a VM is refused. The error names the device, its file and the field.

mod device;
mod mount;
mod refusal;

pub(crate) use self::device::put as put_device;
pub(crate) use self::mount::{clear as clear_mounts, put as put_mount};

use proto_cri::v1;
use runtime_cdi::{DeviceName, Edits, Origin};
use runtime_spec::ContainerSpec;

use self::refusal::refusal;
use crate::error::Failure;

/// Prefix of annotations naming CDI devices (the CDI library, `AnnotationPrefix`).
const ANNOTATION: &str = "cdi.k8s.io/";

/// Most CDI devices of one container. A container has fewer device nodes, and far fewer mounts.
const DEVICES_MAX: usize = 512;

/// The devices requested by the container: those of the field, then those of annotations by their keys'
/// order, each once.
pub(crate) fn cdi_devices(config: &v1::ContainerConfig) -> Result<Vec<DeviceName>, Failure> {
    let fields = config.cdi_devices.iter().map(|device| ("CDI_devices", device.name.as_str()));
    let mut annotations: Vec<_> =
        config.annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).collect();
    annotations.sort();
    let annotated = annotations
        .into_iter()
        .flat_map(|(key, value)| value.split(',').map(move |name| (key.as_str(), name)));
    let mut names = Vec::new();
    for (number, (place, text)) in fields.chain(annotated).enumerate() {
        if number == DEVICES_MAX {
            return Err(Failure::invalid(format!(
                "{place}: the container asks for more than {DEVICES_MAX} CDI devices"
            )));
        }
        let name: DeviceName = text.parse().map_err(|error| Failure::invalid(format!("{place}: {error}")))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Applies edits in their order. If a variable, a node or a mount occurs twice, the later one wins.
pub(crate) fn apply(spec: &mut ContainerSpec, edits: Vec<(Origin, Edits)>) -> Result<(), Failure> {
    for (origin, edits) in edits {
        refuse(&origin, &edits)?;
        spec.env.extend(edits.env);
        for node in edits.device_nodes {
            device::add(spec, &origin, &node)?;
        }
        for mount in edits.mounts {
            mount::add(spec, &origin, mount)?;
        }
        for gid in edits.additional_gids.into_iter().map(i64::from) {
            if !spec.security.supplemental_groups.contains(&gid) {
                spec.security.supplemental_groups.push(gid);
            }
        }
    }
    Ok(())
}

fn refuse(origin: &Origin, edits: &Edits) -> Result<(), Failure> {
    if let Some(hook) = edits.hooks.first() {
        let reason = format!(
            "the hook {} at {} is a program of the node and cannot run: the container is in a VM",
            hook.path, hook.name
        );
        return Err(refusal(origin, "hooks", &reason));
    }
    if edits.intel_rdt {
        let reason = "classes of caches and memory bandwidth are of the node's processor, and a VM has none";
        return Err(refusal(origin, "intelRdt", reason));
    }
    if let Some(name) = edits.net_devices.first() {
        let reason =
            format!("the node's interface {name} cannot move into a VM: its interfaces come from CNI");
        return Err(refusal(origin, "netDevices", &reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use runtime_cdi::Registry;
    use runtime_spec::{ContainerPlan, ImageConfig, PodSpec};

    use super::*;
    use crate::convert::container_spec;

    /// A directory with one file, `x.json`, defining `v.com/c=d` by these edits.
    fn node(edits: &str) -> (tempfile::TempDir, Registry) {
        let dir = tempfile::tempdir().unwrap();
        let file = format!(
            r#"{{"cdiVersion":"1.1.0","kind":"v.com/c","containerEdits":{{"env":["ALL=1"]}},
                "devices":[{{"name":"d","containerEdits":{edits}}}]}}"#
        );
        std::fs::write(dir.path().join("x.json"), file).unwrap();
        let registry = Registry::new(vec![dir.path().to_owned()]);
        (dir, registry)
    }

    fn config() -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "i".into(), ..Default::default() }),
            command: vec!["sh".into()],
            envs: vec![v1::KeyValue { key: "A".into(), value: b"asked".to_vec() }],
            cdi_devices: vec![v1::CdiDevice { name: "v.com/c=d".into() }],
            ..Default::default()
        }
    }

    fn edited(edits: &str, mut config: v1::ContainerConfig) -> Result<ContainerSpec, String> {
        let (_dir, registry) = node(edits);
        let names = cdi_devices(&config).map_err(|failure| failure.to_string())?;
        config.cdi_devices.clear();
        let mut spec = container_spec(config).map_err(|failure| failure.to_string())?;
        let edits = registry.resolve(&names).map_err(|error| error.to_string())?;
        apply(&mut spec, edits).map_err(|failure| failure.to_string())?;
        Ok(spec)
    }

    /// The refusal of a device with these edits, without the names of device and file at its beginning.
    pub(super) fn refused(edits: &str) -> String {
        let error = edited(edits, config()).unwrap_err();
        let rest = error.strip_prefix("CDI device v.com/c=d of /").expect("a refusal names the device");
        rest.split_once("/x.json: containerEdits.").expect("a refusal names file and field").1.to_owned()
    }

    pub(super) fn spec(edits: &str) -> ContainerSpec {
        edited(edits, config()).unwrap()
    }

    #[test]
    fn a_cdi_device_brings_variables_mounts_nodes_and_groups_into_the_containers_plan() {
        let edits = r#"{"env":["A=cdi","B=2"],"additionalGids":[0,44],
            "deviceNodes":[{"path":"/dev/fuse","permissions":"rw","uid":7}],
            "mounts":[{"hostPath":"/opt/lib","containerPath":"/lib/v","options":["ro","nosuid","nodev","rbind"]}]}"#;
        let spec = spec(edits);
        let pod = PodSpec { name: "p".into(), namespace: "n".into(), uid: "u".into(), ..PodSpec::default() };
        let plan =
            ContainerPlan::resolve(&pod, &spec, &ImageConfig::default(), "id1", &crate::fuzz::PATHS).unwrap();
        let process = plan.oci.process().clone().unwrap();
        let env = process.env().clone().unwrap();
        for (variable, count) in [("A=cdi", 1), ("A=asked", 0), ("B=2", 1), ("ALL=1", 1)] {
            assert_eq!(env.iter().filter(|known| *known == variable).count(), count, "{variable} in {env:?}");
        }
        assert_eq!(process.user().additional_gids().clone().unwrap(), [44]);
        let mounts = plan.oci.mounts().clone().unwrap();
        let mount = mounts.iter().find(|mount| mount.destination() == Path::new("/lib/v")).unwrap();
        assert!(mount.options().clone().unwrap().contains(&"nosuid".to_owned()));
        assert!(plan.shared_mounts && spec.mounts[0].readonly && spec.mounts[0].host_path == "/opt/lib");
        let nodes = plan.oci.linux().clone().unwrap().devices().clone().unwrap();
        let node = nodes.iter().find(|node| node.path() == Path::new("/dev/fuse")).unwrap();
        assert_eq!((node.major(), node.minor(), node.uid()), (10, 229, Some(7)));
    }

    #[test]
    fn names_come_from_the_field_and_from_annotations_and_count_once() {
        let name = |name: &str| v1::CdiDevice { name: name.into() };
        let annotation = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let config = v1::ContainerConfig {
            cdi_devices: vec![name("v/c=2"), name("v/c=1"), name("v/c=2")],
            annotations: [
                annotation("cdi.k8s.io/b", "v/c=4"),
                annotation("cdi.k8s.io/a", "v/c=3,v/c=1"),
                annotation("example.com/a", "not a device"),
            ]
            .into(),
            ..Default::default()
        };
        let names: Vec<_> = cdi_devices(&config).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["v/c=2", "v/c=1", "v/c=3", "v/c=4"]);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_its_place() {
        let asked = |field: &str, value: &str| {
            let annotations = [("cdi.k8s.io/x".to_owned(), value.to_owned())].into();
            let cdi_devices = vec![v1::CdiDevice { name: field.into() }];
            let config = v1::ContainerConfig { cdi_devices, annotations, ..Default::default() };
            super::cdi_devices(&config).unwrap_err().to_string()
        };
        assert!(asked("gpu", "v/c=1").starts_with("CDI_devices: \"gpu\" is no qualified name"));
        assert!(asked("", "v/c=1").starts_with("CDI_devices: \"\" is no qualified name"));
        for value in ["", "v/c=1,", "v/c=1, v/c=2", "v/c"] {
            assert!(asked("v/c=0", value).starts_with("cdi.k8s.io/x: "), "{value}");
        }
        assert!(asked("v/c=0", &vec!["v/c=1"; 600].join(",")).contains("more than 512 CDI devices"));
    }

    #[test]
    fn what_needs_the_nodes_kernel_is_refused_by_device_file_and_field() {
        let hook = r#"{"hooks":[{"hookName":"createContainer","path":"/usr/bin/ldcache","args":["x"]}]}"#;
        assert_eq!(
            refused(hook),
            "hooks: the hook /usr/bin/ldcache at createContainer is a program of the node and cannot run: \
             the container is in a VM"
        );
        assert!(refused(r#"{"intelRdt":{"closID":"gold"}}"#).starts_with("intelRdt: "));
        let interface = r#"{"netDevices":[{"hostInterfaceName":"eth7","name":"eth1"}]}"#;
        assert!(refused(interface).starts_with("netDevices: the node's interface eth7 "));
    }

    #[test]
    fn a_container_without_cdi_devices_asks_for_none() {
        let annotations = [("io.kubernetes.container.hash".to_owned(), "x".to_owned())].into();
        let config = v1::ContainerConfig { cdi_devices: Vec::new(), annotations, ..config() };
        assert!(cdi_devices(&config).unwrap().is_empty());
    }
}
