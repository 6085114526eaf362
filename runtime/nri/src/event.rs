//! Events, and sets of them for a plugin's subscription.

use proto_nri::nri::Event;
use proto_nri::nri::Event::*;

/// All events, each with its name.
const NAMES: [(Event, &str); 14] = [
    (RUN_POD_SANDBOX, "RunPodSandbox"),
    (STOP_POD_SANDBOX, "StopPodSandbox"),
    (REMOVE_POD_SANDBOX, "RemovePodSandbox"),
    (CREATE_CONTAINER, "CreateContainer"),
    (POST_CREATE_CONTAINER, "PostCreateContainer"),
    (START_CONTAINER, "StartContainer"),
    (POST_START_CONTAINER, "PostStartContainer"),
    (UPDATE_CONTAINER, "UpdateContainer"),
    (POST_UPDATE_CONTAINER, "PostUpdateContainer"),
    (STOP_CONTAINER, "StopContainer"),
    (REMOVE_CONTAINER, "RemoveContainer"),
    (UPDATE_POD_SANDBOX, "UpdatePodSandbox"),
    (POST_UPDATE_POD_SANDBOX, "PostUpdatePodSandbox"),
    (VALIDATE_CONTAINER_ADJUSTMENT, "ValidateContainerAdjustment"),
];

/// The name of an event's RPC.
pub(crate) fn name(event: Event) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == event).map_or("an event", |(_, name)| name)
}

/// The events a plugin subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events(i32);

impl Events {
    /// All events.
    pub(crate) const ALL: Events = Events((1 << (LAST as i32 - 1)) - 1);

    /// The set from a plugin's answer. Zero means all events.
    ///
    /// # Errors
    /// Some bits belong to no event.
    pub(crate) fn from_bits(bits: i32) -> Result<Events, String> {
        match bits {
            0 => Ok(Events::ALL),
            bits if bits & !Events::ALL.0 != 0 => Err(format!("{bits:#x} has bits of no event")),
            bits => Ok(Events(bits)),
        }
    }

    /// Returns true if the set contains the event.
    pub(crate) fn has(self, event: Event) -> bool {
        self.0 & bit(event) != 0
    }
}

fn bit(event: Event) -> i32 {
    match event as i32 {
        0 => 0,
        number => 1 << (number - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_names_no_event_wants_all_and_one_that_names_none_of_ours_is_refused() {
        assert_eq!(Events::from_bits(0).unwrap(), Events::ALL);
        let some = Events::from_bits(1 << 3 | 1 << 13).unwrap();
        assert!(some.has(VALIDATE_CONTAINER_ADJUSTMENT));
        assert!(some.has(CREATE_CONTAINER) && !some.has(START_CONTAINER) && !some.has(UNKNOWN));
        assert!(Events::from_bits(1 << 14).is_err() && Events::from_bits(-1).is_err());
        assert!(NAMES.iter().all(|(event, _)| Events::ALL.has(*event)));
    }
}
