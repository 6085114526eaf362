//! Namespaces, cgroup, devices and hidden paths of the OCI specification. Limits are in `cgroup.rs`.

use std::path::Path;

use oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder,
    LinuxDeviceType, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, LinuxResources,
    LinuxResourcesBuilder,
};

use super::guest_paths::GuestPaths;
use super::seccomp;
use crate::{ContainerSpec, Device, GuestDevice, NamespaceMode, PodSpec, Profile};

/// Files of /proc and /sys describing the guest, or able to harm it.
pub const MASKED_PATHS: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Files of /proc with settings of the guest's kernel.
pub const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn linux(pod: &PodSpec, container: &ContainerSpec, id: &str, paths: &GuestPaths) -> Linux {
    let security = &container.security;
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(pod, container, paths))
        .cgroups_path(Path::new(paths.cgroup_parent).join(id))
        .resources(resources(container))
        .rootfs_propagation("private")
        .build()
        .expect("every field has a default");
    if let Some(devices) = devices(container) {
        linux.set_devices(Some(devices));
    }
    // The builder starts from its own list.
    linux.set_masked_paths(None);
    linux.set_readonly_paths(None);
    if !security.privileged {
        linux.set_masked_paths(Some(listed(security.masked_paths.as_deref(), &MASKED_PATHS)));
        linux.set_readonly_paths(Some(listed(security.readonly_paths.as_deref(), &READONLY_PATHS)));
        // The default one also stands in for a profile of the node until `ContainerPlan::confine`.
        if matches!(security.seccomp, Some(Profile::RuntimeDefault | Profile::Localhost(_))) {
            linux.set_seccomp(Some(seccomp::runtime_default(security)));
        }
    }
    linux
}

fn listed(asked: Option<&[String]>, default: &[&str]) -> Vec<String> {
    asked.map_or_else(|| default.iter().map(|&path| path.to_owned()).collect(), <[String]>::to_vec)
}

fn namespaces(pod: &PodSpec, container: &ContainerSpec, paths: &GuestPaths) -> Vec<LinuxNamespace> {
    let namespace = |typ| LinuxNamespaceBuilder::default().typ(typ);
    let mut all = vec![namespace(LinuxNamespaceType::Mount), namespace(LinuxNamespaceType::Cgroup)];
    let modes = container.security.namespaces.as_ref().unwrap_or(&pod.namespaces);
    match modes.pid {
        NamespaceMode::Container => all.push(namespace(LinuxNamespaceType::Pid)),
        NamespaceMode::Pod => all.push(namespace(LinuxNamespaceType::Pid).path(paths.pid_namespace)),
        // The guest's own, or one found by the agent: see `ContainerSpec::pid_target`.
        NamespaceMode::Node | NamespaceMode::Target(_) => {}
    }
    all.into_iter().map(|one| one.build().expect("the type is set")).collect()
}

/// Only device rules. The agent writes the limits, at creation as at each later update.
fn resources(container: &ContainerSpec) -> LinuxResources {
    LinuxResourcesBuilder::default()
        .devices(device_rules(container))
        .build()
        .expect("every field has a default")
}

/// All devices for privileged containers. For others: the creation of nodes, every container's devices, and
/// requested ones.
fn device_rules(container: &ContainerSpec) -> Vec<LinuxDeviceCgroup> {
    let rule = |allow, typ, major: Option<i64>, minor: Option<i64>, access: &str| {
        let mut rule = LinuxDeviceCgroupBuilder::default()
            .allow(allow)
            .typ(typ)
            .access(access)
            .build()
            .expect("all needed fields are set");
        rule.set_major(major);
        rule.set_minor(minor);
        rule
    };
    if container.security.privileged {
        return vec![rule(true, LinuxDeviceType::A, None, None, "rwm")];
    }
    let mut rules = vec![
        rule(false, LinuxDeviceType::A, None, None, "rwm"),
        rule(true, LinuxDeviceType::C, None, None, "m"),
        rule(true, LinuxDeviceType::B, None, None, "m"),
        // Pseudo-terminals.
        rule(true, LinuxDeviceType::C, Some(136), None, "rwm"),
        rule(true, LinuxDeviceType::C, Some(5), Some(2), "rwm"),
    ];
    let default = GuestDevice::ALL.into_iter().filter(|device| device.is_default);
    rules.extend(default.map(|GuestDevice { major, minor, .. }| {
        rule(true, LinuxDeviceType::C, Some(major), Some(minor), "rwm")
    }));
    for (device, of_guest) in guest_devices(container) {
        let (major, minor) = (Some(of_guest.major), Some(of_guest.minor));
        rules.push(rule(true, LinuxDeviceType::C, major, minor, &device.permissions));
    }
    rules
}

/// Nodes for the guest's own devices, if the container does not have them by default.
fn devices(container: &ContainerSpec) -> Option<Vec<LinuxDevice>> {
    let nodes = guest_devices(container).filter(|(device, of_guest)| {
        !(of_guest.is_default && device.container_path == of_guest.path && device.is_as_made())
    });
    let nodes: Vec<_> = nodes
        .map(|(device, of_guest)| {
            let node = LinuxDeviceBuilder::default().path(&device.container_path).typ(LinuxDeviceType::C);
            let node = node.major(of_guest.major).minor(of_guest.minor);
            let node = node.file_mode(device.mode.unwrap_or(GuestDevice::MODE));
            let mut node = node.build().expect("all needed fields are set");
            // The agent gives a node without an owner to the process's user.
            node.set_uid(device.uid).set_gid(device.gid);
            node
        })
        .collect();
    (!nodes.is_empty()).then_some(nodes)
}

fn guest_devices(container: &ContainerSpec) -> impl Iterator<Item = (&Device, GuestDevice)> {
    container.devices.iter().filter_map(|device| Some((device, device.guest_device()?)))
}
