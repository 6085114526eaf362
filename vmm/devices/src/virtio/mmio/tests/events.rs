//! The events for notifications of a device.

use super::{Recorder, plugged};

#[test]
fn queue_events_are_registered_from_activation_to_reset() {
    let mut slot = plugged(Recorder { events: true, ..Recorder::default() });
    slot.start();
    assert_eq!(slot.recorder.seen.lock().unwrap().registered, [0, 1]);
    slot.set(0x50, 1);
    {
        let seen = slot.recorder.seen.lock().unwrap();
        assert_eq!(seen.active.as_ref().unwrap().queue_events[1].read().unwrap(), 1);
        assert!(seen.notified.is_empty());
    }
    slot.set(0x70, 0);
    assert!(slot.recorder.seen.lock().unwrap().registered.is_empty());
    assert_eq!(slot.get(0x70), 0);
}

#[test]
fn a_queue_without_an_event_reaches_the_device_beside_others_that_have_one() {
    let mut slot = plugged(Recorder { events: true, without_event: Some(0), ..Recorder::default() });
    slot.start();
    assert_eq!(slot.recorder.seen.lock().unwrap().registered, [1]);
    slot.set(0x50, 0);
    slot.set(0x50, 1);
    {
        let seen = slot.recorder.seen.lock().unwrap();
        assert_eq!(seen.notified, [0]);
        assert_eq!(seen.active.as_ref().unwrap().queue_events[1].read().unwrap(), 1);
    }
    slot.set(0x70, 0);
    assert!(slot.recorder.seen.lock().unwrap().registered.is_empty());
}
