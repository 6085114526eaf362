//! A slot's counts of its device, and of waiting requests.

use vm_memory::Bytes as _;

use super::*;

#[test]
fn requests_that_are_not_answered_are_counted_while_the_device_runs() {
    let mut slot = plugged(Recorder::default());
    let counts = Counts { faults: 3, ..Counts::default() };
    assert_eq!(slot.transport.counts(), Some((counts, 0)));
    slot.start();
    let memory = slot.recorder.seen.lock().unwrap().active.as_ref().unwrap().memory.clone();
    let queued = |available: u16, used: u16| {
        // The second queue has requests. The first has empty buffers, and they are not work.
        for ring in [0x1400, 0x2400] {
            memory.writable().write_obj(available.to_le(), GuestAddress(ring + 2)).unwrap();
        }
        memory.writable().write_obj(used.to_le(), GuestAddress(0x2802)).unwrap();
        slot.transport.counts().unwrap().1
    };
    assert_eq!((queued(5, 5), queued(7, 5), queued(1, 0xffff)), (0, 2, 2));
    // A guest may write any number; there is no more than the queue holds.
    assert_eq!((queued(5, 6), queued(0x8000, 0)), (8, 8));
    slot.transport.pause().unwrap();
    assert_eq!(slot.transport.counts(), Some((counts, 0)));
    slot.transport.unplug().unwrap();
    assert_eq!(slot.transport.counts(), None);
}
