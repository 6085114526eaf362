//! The devices of the node: places for VMs, numbered from zero. A place is no thing: every device is as good as another, and
//! only their number means something.

use std::collections::BTreeSet;

/// Beginning of a device's id; its number follows.
const PREFIX: &str = "vm-";

/// The devices that the node lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    /// Number of the devices, 1..=[`VMS_MAX`](crate::VMS_MAX).
    pub(crate) count: u16,
}

/// Devices that can be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Every device.
    All,
    /// Devices that pods hold: memory is short, and there is no place for another VM.
    Held(BTreeSet<u16>),
    /// No device.
    None,
}

impl Devices {
    /// Returns every device's number.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u16> {
        0..self.count
    }

    /// Returns the number of the device with this id; `None` for an id that is not listed.
    pub(crate) fn number(self, id: &str) -> Option<u16> {
        let number = id.strip_prefix(PREFIX)?.parse().ok()?;
        // Not "vm-007" and not "vm-+7".
        (number < self.count && name(number) == id).then_some(number)
    }
}

/// Returns the id of a device.
pub(crate) fn name(number: u16) -> String {
    format!("{PREFIX}{number}")
}

impl Usable {
    /// Whether this device can be used.
    pub(crate) fn has(&self, number: u16) -> bool {
        match self {
            Usable::All => true,
            Usable::Held(held) => held.contains(&number),
            Usable::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_exactly_as_it_is_listed() {
        let devices = Devices { count: 12 };
        for number in devices.numbers() {
            assert_eq!(devices.number(&name(number)), Some(number));
        }
        for id in ["vm-12", "vm-007", "vm-+1", "vm--1", "vm-", "vm", "", "VM-1", "vm-1 ", "vm-70000"] {
            assert_eq!(devices.number(id), None, "{id:?}");
        }
    }
}
