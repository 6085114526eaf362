//! Disks that containers have: slots bound with their first container, and let go of with their last. It
//! knows slots, not containers; what is on a disk is nothing to it.

use std::collections::HashMap;

use tokio::sync::Mutex;

use crate::slots::{Class, SlotError, Slots};

/// Users by slot.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    slots: Slots,
    users: Mutex<HashMap<u32, usize>>,
}

impl Disks {
    /// Binds the slot, unless it is, and counts one more user. Its device's name ("vdb").
    pub(crate) async fn acquire(&self, slot: u32) -> Result<String, SlotError> {
        let mut users = self.users.lock().await;
        let name = self.slots.device(slot, Class::Block).await?;
        *users.entry(slot).or_default() += 1;
        Ok(name)
    }

    /// One user less. After the last the slot is free for the host to unplug: what was written is on the
    /// disk, for the kernel has written it back with the last descriptor.
    pub(crate) async fn release(&self, slot: u32) -> Result<(), SlotError> {
        let mut users = self.users.lock().await;
        match users.get_mut(&slot) {
            None => return Ok(()),
            Some(count) if *count > 1 => {
                *count -= 1;
                return Ok(());
            }
            Some(_) => {}
        }
        self.slots.unbind(slot)?;
        users.remove(&slot);
        Ok(())
    }
}
