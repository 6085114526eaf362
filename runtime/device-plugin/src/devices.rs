//! The devices of the node: places for VMs, numbered from zero. They are interchangeable; only their count
//! matters.

use std::collections::BTreeSet;

/// Prefix of a device's id, before its number.
const PREFIX: &str = "vm-";

/// The devices listed by the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    /// Number of the devices, 1..=[`VMS_MAX`](crate::VMS_MAX).
    pub(crate) count: u16,
}

/// Devices usable now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Every device.
    All,
    /// Devices held by pods: memory is short, so there is no place for another VM.
    Held(BTreeSet<u16>),
    /// No device.
    None,
}

impl Devices {
    /// Returns every device's number.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u16> {
        0..self.count
    }

    /// Returns the number of the device with this id. `None` if the id is not listed.
    pub(crate) fn number(self, id: &str) -> Option<u16> {
        let number = id.strip_prefix(PREFIX)?.parse().ok()?;
        // Refuses "vm-007" and "vm-+7".
        (number < self.count && name(number) == id).then_some(number)
    }
}

/// Returns the id of a device.
pub(crate) fn name(number: u16) -> String {
    format!("{PREFIX}{number}")
}

impl Usable {
    /// Returns true if this device is usable.
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
