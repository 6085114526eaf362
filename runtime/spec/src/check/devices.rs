//! Refuses impossible devices. The check reads only the request. Whether the host has a device, and its kind,
//! is found out on opening it.

use std::path::Path;

use crate::container_path::normalized;
use crate::{Device, GuestDevice, PodSpec, SpecError};

/// Most devices of one container. A VM has fewer slots.
const DEVICES_MAX: usize = 64;

/// All permissions of a file.
const MODE_MAX: u32 = 0o777;

/// Refuses invalid devices.
pub(super) fn check(devices: &[Device], pod: &PodSpec) -> Result<(), SpecError> {
    if devices.len() > DEVICES_MAX {
        return Err(SpecError::invalid("devices", format!("{} are more than {DEVICES_MAX}", devices.len())));
    }
    devices.iter().try_for_each(|device| {
        check_one(device)?;
        device.guest_device().map_or(Ok(()), |own| guests_own(device, own, pod))
    })
}

/// In a user namespace no device node can be created. The guest's own is mounted in its place, unchanged.
fn guests_own(device: &Device, own: GuestDevice, pod: &PodSpec) -> Result<(), SpecError> {
    let Device { host_path, container_path, .. } = device;
    let (path, at_its_place) = (normalized(container_path), Path::new(own.path));
    let mapped = !pod.namespaces.uids.is_empty();
    if mapped && path != at_its_place {
        let reason =
            format!("{container_path:?}: a pod with a user namespace has {host_path} at its own path only");
        return Err(SpecError::invalid("devices.container_path", reason));
    }
    if mapped && !device.is_as_made() {
        let reason = format!("owner and mode of {host_path} cannot be set in a pod with a user namespace");
        return Err(SpecError::invalid("devices", reason));
    }
    Ok(())
}

fn check_one(device: &Device) -> Result<(), SpecError> {
    let Device { host_path, container_path, permissions, mode, .. } = device;
    for (field, path) in [("devices.host_path", host_path), ("devices.container_path", container_path)] {
        if !path.starts_with('/') || path.contains('\0') {
            return Err(SpecError::invalid(field, format!("{path:?} is no absolute path")));
        }
    }
    if normalized(container_path).parent().is_none() {
        let reason = format!("{container_path:?} is the container's root");
        return Err(SpecError::invalid("devices.container_path", reason));
    }
    if permissions.is_empty() || !permissions.chars().all(|letter| "rwm".contains(letter)) {
        let reason = format!("{permissions:?} for {host_path}: must be some of r, w and m");
        return Err(SpecError::invalid("devices.permissions", reason));
    }
    match mode {
        Some(mode) if !(1..=MODE_MAX).contains(mode) => {
            let reason =
                format!("mode {mode:o} of {container_path}: must be permissions from 1 to {MODE_MAX:o}");
            Err(SpecError::invalid("devices", reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_two_paths_and_permissions() {
        let good = device("/dev/a", "/dev/b");
        let pod = PodSpec::default();
        check(std::slice::from_ref(&good), &pod).unwrap();
        let text = String::from;
        for (bad, field) in [
            (Device { host_path: text("dev/a"), ..good.clone() }, "devices.host_path"),
            (Device { container_path: text(""), ..good.clone() }, "devices.container_path"),
            (Device { container_path: text("/dev/.."), ..good.clone() }, "devices.container_path"),
            (Device { permissions: text("rx"), ..good.clone() }, "devices.permissions"),
            (Device { permissions: text(""), ..good.clone() }, "devices.permissions"),
            (Device { mode: Some(0), ..good.clone() }, "devices: mode 0 of"),
            (Device { mode: Some(0o1777), ..good.clone() }, "devices: mode 1777 of"),
        ] {
            assert!(check(&[bad], &pod).unwrap_err().to_string().starts_with(field));
        }
        assert!(check(&vec![good; DEVICES_MAX + 1], &pod).is_err());
    }

    #[test]
    fn a_device_of_the_guests_own_has_its_node_where_one_can_be_made() {
        let at = |path: &str| device("/dev/fuse", path);
        let mine = || Device { uid: Some(7), mode: Some(0o600), ..at("/dev/fuse") };
        let mapping = vec![crate::IdMapping { container_id: 0, host_id: 1000, length: 9 }];
        let namespaces = crate::Namespaces { uids: mapping.clone(), gids: mapping, ..Default::default() };
        let (plain, mapped) = (PodSpec::default(), PodSpec { namespaces, ..PodSpec::default() });
        for (device, pod) in [
            (at("/dev/fuse"), &plain),
            (at("/dev/x/../f"), &plain),
            (at("/devices/fuse"), &plain),
            (mine(), &plain),
            (at("/dev/fuse"), &mapped),
        ] {
            check(&[device], pod).unwrap();
        }
        for (device, pod, words) in [
            (at("/dev/f"), &mapped, "at its own path only"),
            (mine(), &mapped, "owner and mode of /dev/fuse"),
        ] {
            let error = check(&[device], pod).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        check(&[Device { mode: Some(0o666), ..device("/dev/null", "/dev/null") }], &mapped).unwrap();
        // A disk is mounted where a node cannot be created.
        check(&[device("/dev/sda", "/tmp/disk")], &mapped).unwrap();
    }

    fn device(host_path: &str, container_path: &str) -> Device {
        Device {
            host_path: host_path.into(),
            container_path: container_path.into(),
            permissions: "mr".into(),
            ..Device::default()
        }
    }
}
