//! Disks that containers have: slots bound with their first container, and let go of with their last. It
//! knows slots, not containers; what is on a disk is nothing to it.

use tokio::sync::Mutex;

use crate::slot_users::SlotUsers;
use crate::slots::{Class, SlotError, Slots};

/// Bound slots.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    slots: Slots,
    users: Mutex<SlotUsers>,
}

impl Disks {
    /// Binds the slot, unless it is, and counts one more user. Its device's name ("vdb").
    pub(crate) async fn acquire(&self, slot: u32) -> Result<String, SlotError> {
        let mut users = self.users.lock().await;
        let name = self.slots.device(slot, Class::Block).await?;
        users.join(slot);
        Ok(name)
    }

    /// One user less. After the last the slot is free for the host to unplug: what was written is on the
    /// disk, for the kernel has written it back with the last descriptor.
    pub(crate) async fn release(&self, slot: u32) -> Result<(), SlotError> {
        let mut users = self.users.lock().await;
        if !users.leave(slot) {
            return Ok(());
        }
        self.slots.unbind(slot)?;
        users.clear(slot);
        Ok(())
    }
}
