//! Functions shared by the front ends of all devices.

use serde::de::DeserializeOwned;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

use super::DeviceError;

/// Answers a read of a configuration space with the content `config`. Bytes after its end read as zero.
pub(crate) fn read_config(config: &[u8], offset: u64, data: &mut [u8]) {
    data.fill(0);
    let here = usize::try_from(offset).ok().and_then(|offset| config.get(offset..)).unwrap_or(&[]);
    for (byte, known) in data.iter_mut().zip(here) {
        *byte = *known;
    }
}

/// Returns the queues of an activation and their events, if there are `N` of each.
pub(crate) fn queues<const N: usize>(
    device: &'static str,
    queues: Vec<Queue>,
    events: Vec<EventFd>,
) -> Result<([Queue; N], [EventFd; N]), DeviceError> {
    let wrong = || DeviceError { device, message: format!("activated without its {N} queues") };
    Ok((queues.try_into().map_err(|_| wrong())?, events.try_into().map_err(|_| wrong())?))
}

/// Reads a saved state.
pub(crate) fn read_state<S: DeserializeOwned>(
    device: &'static str,
    saved: &serde_json::Value,
) -> Result<S, DeviceError> {
    S::deserialize(saved)
        .map_err(|error| DeviceError { device, message: format!("the saved state is malformed: {error}") })
}

/// Checks that a saved state comes from a device made like this one.
pub(crate) fn check_state<S: DeserializeOwned + PartialEq + std::fmt::Debug>(
    device: &'static str,
    saved: &serde_json::Value,
    here: &S,
) -> Result<(), DeviceError> {
    let saved: S = read_state(device, saved)?;
    if saved == *here {
        return Ok(());
    }
    Err(DeviceError { device, message: format!("saved as {saved:?}, and now it is {here:?}") })
}
