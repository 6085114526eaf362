//! Disks of containers. A slot is bound for its first container and unbound after the last. This module knows
//! slots, not containers, and never reads a disk's content.

use tokio::sync::Mutex;

use crate::slot_users::SlotUsers;
use crate::slots::{Class, SlotError, Slots};

/// The bound slots.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    slots: Slots,
    users: Mutex<SlotUsers>,
}

impl Disks {
    /// Binds the slot, unless it is bound, and counts one more user. Returns the device's name ("vdb").
    pub(crate) async fn acquire(&self, slot: u32) -> Result<String, SlotError> {
        let mut users = self.users.lock().await;
        let name = self.slots.device(slot, Class::Block).await?;
        users.join(slot);
        Ok(name)
    }

    /// Counts one user less. After the last the host may unplug the slot, because the kernel wrote everything
    /// back when the last descriptor was closed.
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
