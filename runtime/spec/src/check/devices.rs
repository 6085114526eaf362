//! Devices that cannot be had. The check reads the request alone: whether the host has a device, and of which
//! kind, is found out when the device is opened.

use crate::container_path::normalized;
use crate::{Device, SpecError};

/// Most devices of one container; a VM has fewer slots.
const DEVICES_MAX: usize = 64;

/// Refuses what makes no sense.
pub(super) fn check(devices: &[Device]) -> Result<(), SpecError> {
    if devices.len() > DEVICES_MAX {
        return Err(SpecError::invalid("devices", format!("{} are more than {DEVICES_MAX}", devices.len())));
    }
    devices.iter().try_for_each(check_one)
}

fn check_one(device: &Device) -> Result<(), SpecError> {
    let Device { host_path, container_path, permissions } = device;
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
    Ok(())
}

/// Refuses a device by its CDI name, and what is no such name.
pub(super) fn refuse_cdi(name: &str) -> SpecError {
    const FIELD: &str = "CDI_devices";
    if is_cdi_name(name) {
        SpecError::unsupported(FIELD, format!("CDI devices ({name}) are"))
    } else {
        SpecError::invalid(FIELD, format!("{name:?} is no qualified name of a device, vendor/class=name"))
    }
}

/// Whether it is `vendor/class=name` (the CDI specification, "Fully qualified device names").
fn is_cdi_name(name: &str) -> bool {
    let Some((kind, device)) = name.split_once('=') else { return false };
    let Some((vendor, class)) = kind.split_once('/') else { return false };
    let part = |text: &str, between: &str| {
        text.ends_with(|last: char| last.is_ascii_alphanumeric())
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || between.contains(letter))
    };
    let letter = |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic());
    letter(vendor)
        && part(vendor, "_-.")
        && letter(class)
        && part(class, "_-")
        && device.starts_with(|first: char| first.is_ascii_alphanumeric())
        && part(device, "_-.:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdi_names_are_distinguished_from_nonsense() {
        for good in ["vendor.com/net=eth0", "v/d=1", "nvidia.com/gpu=GPU-1:0"] {
            assert!(matches!(refuse_cdi(good), SpecError::Unsupported { .. }), "{good}");
        }
        for bad in ["", "gpu", "v/d", "v=1", "/d=1", "v/=1", "v/d=", "1v/d=1", "v/d=-1", "v/d=a b", "v/d=1-"]
        {
            assert!(matches!(refuse_cdi(bad), SpecError::Invalid { .. }), "{bad}");
        }
    }

    #[test]
    fn a_device_has_two_paths_and_permissions() {
        let good =
            Device { host_path: "/dev/a".into(), container_path: "/dev/b".into(), permissions: "mr".into() };
        check(std::slice::from_ref(&good)).unwrap();
        let text = String::from;
        for (bad, field) in [
            (Device { host_path: text("dev/a"), ..good.clone() }, "devices.host_path"),
            (Device { container_path: text(""), ..good.clone() }, "devices.container_path"),
            (Device { container_path: text("/dev/.."), ..good.clone() }, "devices.container_path"),
            (Device { permissions: text("rx"), ..good.clone() }, "devices.permissions"),
            (Device { permissions: text(""), ..good.clone() }, "devices.permissions"),
        ] {
            assert!(check(&[bad]).unwrap_err().to_string().starts_with(field));
        }
        assert!(check(&vec![good; DEVICES_MAX + 1]).is_err());
    }
}
