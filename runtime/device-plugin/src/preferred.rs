//! The choice of devices for a container, if the kubelet leaves it to the plugin. Pure.

use std::collections::BTreeSet;

use crate::devices::{Devices, name};

/// A container's possible devices, and the number it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    /// Devices to choose from.
    pub(crate) available: &'a [String],
    /// Devices that must be in the choice.
    pub(crate) must: &'a [String],
    /// Number of devices to choose.
    pub(crate) size: i32,
}

/// Returns the required devices, and then the first available ones; fewer than `size` if there are no more.
/// Devices are all alike, so the lowest numbers are chosen: a short list is easily read.
///
/// # Errors
/// An id is not listed, or the number of devices is invalid.
pub(crate) fn choose(devices: Devices, choice: Choice<'_>) -> Result<Vec<String>, String> {
    let Choice { available, must, size } = choice;
    let must = numbers(devices, must)?;
    let available = numbers(devices, available)?;
    let size = usize::try_from(size).ok().filter(|&size| size <= usize::from(devices.count));
    let size = size.ok_or_else(|| format!("{} devices of {} were asked for", choice.size, devices.count))?;
    if must.len() > size {
        return Err(format!("{} devices must be among {size}", must.len()));
    }
    let others = available.difference(&must);
    Ok(must.iter().chain(others).take(size).map(|&number| name(number)).collect())
}

/// Returns the numbers of these devices.
///
/// # Errors
/// An id is not listed; the message names it.
pub(crate) fn numbers(devices: Devices, ids: &[String]) -> Result<BTreeSet<u16>, String> {
    let number = |id: &String| {
        // The id may be as long as a message.
        let shown = || id.chars().take(80).collect::<String>();
        devices.number(id).ok_or_else(|| format!("no device has the id {:?}", shown()))
    };
    ids.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(available: &[&str], must: &[&str], size: i32) -> Result<Vec<String>, String> {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let (available, must) = (ids(available), ids(must));
        choose(Devices { count: 20 }, Choice { available: &available, must: &must, size })
    }

    #[test]
    fn the_lowest_numbers_follow_what_must_be_chosen() {
        let all = ["vm-10", "vm-9", "vm-2", "vm-7"];
        assert_eq!(chosen(&all, &["vm-10"], 3).unwrap(), ["vm-10", "vm-2", "vm-7"]);
        assert_eq!(chosen(&all, &[], 2).unwrap(), ["vm-2", "vm-7"]);
        assert_eq!(chosen(&all, &[], 0).unwrap(), Vec::<String>::new());
        assert_eq!(chosen(&["vm-1", "vm-1"], &["vm-1"], 2).unwrap(), ["vm-1"]);
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        for (available, must, size) in [
            (["vm-1"], ["vm-2"], 0),
            (["vm-1"], ["vm-2"], -1),
            (["vm-1"], ["vm-2"], i32::MAX),
            (["vm-20"], ["vm-2"], 1),
            (["vm-1"], ["gpu-1"], 1),
        ] {
            assert!(chosen(&available, &must, size).is_err(), "{available:?} {must:?} {size}");
        }
    }
}
