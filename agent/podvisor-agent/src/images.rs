//! Images: one EROFS mount per slot, shared by its containers and unmounted after the last. This module knows
//! slots and mounts, not containers.

use std::path::PathBuf;

use nix::mount::{MntFlags, MsFlags};
use tokio::sync::Mutex;

use crate::slot_users::SlotUsers;
use crate::slots::{Class, SlotError, Slots};

/// Parent of the mount points. Each is named after its slot.
const DIRECTORY: &str = "/run/podvisor/images";
/// Prefix of the pmem driver's disk names.
const PMEM: &str = "pmem";

/// Why an image could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("cannot make {path}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot mount the image in slot {slot} from {device}")]
    Mount { slot: u32, device: String, source: nix::Error },
    #[error("cannot unmount the image in slot {slot}")]
    Unmount { slot: u32, source: nix::Error },
}

/// Mounted images by slot. The lock is held during a mount, so that two containers of one image share one
/// mount.
#[derive(Debug, Default)]
pub(crate) struct Images {
    slots: Slots,
    users: Mutex<SlotUsers>,
}

impl Images {
    /// Mounts the image in this slot, unless it is mounted, and counts one more user.
    pub(crate) async fn acquire(&self, slot: u32) -> Result<PathBuf, ImageError> {
        let mut users = self.users.lock().await;
        let path = path(slot);
        if users.has(slot) {
            users.join(slot);
            return Ok(path);
        }
        let name = self.slots.device(slot, Class::Block).await?;
        std::fs::create_dir_all(&path)
            .map_err(|source| ImageError::Directory { path: path.clone(), source })?;
        let device = format!("/dev/{name}");
        // DAX: the image's pages are the host's page cache, not a copy in guest memory.
        let options = if name.starts_with(PMEM) { "dax=always" } else { "" };
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
        nix::mount::mount(Some(device.as_str()), &path, Some("erofs"), flags, Some(options))
            .map_err(|source| ImageError::Mount { slot, device, source })?;
        users.join(slot);
        Ok(path)
    }

    /// Counts one user less. After the last the image is unmounted, and the host may unplug the slot.
    pub(crate) async fn release(&self, slot: u32) -> Result<(), ImageError> {
        let mut users = self.users.lock().await;
        if !users.leave(slot) {
            return Ok(());
        }
        nix::mount::umount2(&path(slot), MntFlags::empty())
            .map_err(|source| ImageError::Unmount { slot, source })?;
        users.clear(slot);
        Ok(self.slots.unbind(slot)?)
    }
}

fn path(slot: u32) -> PathBuf {
    PathBuf::from(format!("{DIRECTORY}/{slot}"))
}
