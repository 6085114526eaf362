//! Full disks: reports the number of the VM's disks waiting for room on the node, if the client knows the
//! event.

use proto_vmm::Event;

use super::Control;

/// First version of the protocol with [`Event::FullDisks`].
const KNOWN_SINCE: u32 = 2;

impl Control {
    /// Reports the number as it is now.
    pub(super) fn full_disks_changed(&mut self) {
        self.full_disks_unsent |= self.full_disks.changed().read().is_ok();
        self.report_full_disks();
    }

    /// Reports it to the present client, or keeps it until the client reads again.
    pub(super) fn report_full_disks(&mut self) {
        let knows = self.client.as_ref().and_then(|client| client.version) >= Some(KNOWN_SINCE);
        if !knows || !self.full_disks_unsent {
            return;
        }
        let event = Event::FullDisks { count: self.full_disks.count() };
        self.full_disks_unsent = !self.send_event(event);
    }
}
