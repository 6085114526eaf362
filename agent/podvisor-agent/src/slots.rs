//! virtio-mmio slots in the guest's kernel: binds and unbinds a slot by name, and finds its driver's device.
//! This module mounts and configures nothing.
//!
//! A slot empty at boot stays an unbound platform device. A write to the driver's `bind` makes the kernel
//! probe it again (`drivers/base/bus.c`, `bind_store`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for a device to appear after its slot was bound. The kernel's own worker registers a pmem region
/// some milliseconds later. It takes seconds on a node with far more runnable VMs than processors.
const APPEAR: Duration = Duration::from_secs(30);
/// Pause between two searches for the device.
const PAUSE: Duration = Duration::from_millis(2);
/// Deepest search below a slot. `virtio3/ndbus0/region0/namespace0.0/block` has depth five.
const DEPTH_MAX: usize = 7;

/// Expected class of a slot's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A network interface.
    Net,
    /// A block device: of virtio-blk, or of the pmem driver.
    Block,
}

impl Class {
    fn directory(self) -> &'static str {
        match self {
            Class::Net => "net",
            Class::Block => "block",
        }
    }
}

/// Why a slot gave no device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotError {
    #[error("the guest has no slot {0}")]
    NoSlot(u32),
    #[error("cannot bind slot {slot}: is it plugged?")]
    Bind { slot: u32, source: io::Error },
    #[error("cannot unbind slot {slot}")]
    Unbind { slot: u32, source: io::Error },
    #[error("slot {slot} has no {class:?} device after {} seconds", APPEAR.as_secs())]
    NoDevice { slot: u32, class: Class },
}

/// The kernel's view of slots. The paths are fields so that tests can have their own.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    platform: PathBuf,
    nodes: PathBuf,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { platform: PathBuf::from("/sys/bus/platform"), nodes: PathBuf::from("/dev") }
    }
}

impl Slots {
    /// Binds the slot, unless it is bound, and returns the name of its device ("eth0", "vda", "pmem1").
    pub(crate) async fn device(&self, slot: u32, class: Class) -> Result<String, SlotError> {
        let directory = self.bind(slot)?;
        let deadline = tokio::time::Instant::now() + APPEAR;
        loop {
            match find(&directory, class.directory(), DEPTH_MAX) {
                Some(device) if self.opens(class, &device) => return Ok(device),
                _ => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(SlotError::NoDevice { slot, class });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Binds the slot, unless it is bound, and returns its directory.
    pub(crate) fn bind(&self, slot: u32) -> Result<PathBuf, SlotError> {
        let name = name(slot);
        let directory = self.platform.join("devices").join(&name);
        if !directory.exists() {
            return Err(SlotError::NoSlot(slot));
        }
        if !directory.join("driver").exists() {
            self.write("bind", &name).map_err(|source| SlotError::Bind { slot, source })?;
        }
        Ok(directory)
    }

    /// Returns true if the device is usable. A disk appears in sysfs before its node exists (ENOENT) and
    /// before it can be opened (ENXIO, until `bdev_add` in the kernel's `block/genhd.c`).
    fn opens(&self, class: Class, device: &str) -> bool {
        match class {
            Class::Net => true,
            Class::Block => fs::File::open(self.nodes.join(device)).is_ok(),
        }
    }

    /// Unbinds the slot's driver, so that the host may unplug the slot. A slot without a driver is no error.
    pub(crate) fn unbind(&self, slot: u32) -> Result<(), SlotError> {
        let name = name(slot);
        if !self.platform.join("devices").join(&name).join("driver").exists() {
            return Ok(());
        }
        self.write("unbind", &name).map_err(|source| SlotError::Unbind { slot, source })
    }

    fn write(&self, file: &str, name: &str) -> io::Result<()> {
        fs::write(self.platform.join("drivers/virtio-mmio").join(file), name)
    }
}

fn name(slot: u32) -> String {
    format!("virtio-mmio.{slot}")
}

/// Returns the first entry of the first directory called `wanted` at or below `directory`. Links are not
/// followed, because sysfs has many links back.
fn find(directory: &Path, wanted: &str, depth: usize) -> Option<String> {
    let entries: Vec<_> = fs::read_dir(directory).ok()?.flatten().collect();
    let directories = || entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    if let Some(class) = directories().find(|entry| entry.file_name() == wanted) {
        let device = fs::read_dir(class.path()).ok()?.flatten().next()?;
        return device.file_name().into_string().ok();
    }
    if depth == 0 {
        return None;
    }
    directories().find_map(|entry| find(&entry.path(), wanted, depth - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> (tempfile::TempDir, Slots) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("drivers/virtio-mmio")).unwrap();
        for path in paths {
            fs::create_dir_all(dir.path().join("devices").join(path)).unwrap();
        }
        let slots = Slots { platform: dir.path().to_owned(), nodes: dir.path().join("nodes") };
        fs::create_dir_all(&slots.nodes).unwrap();
        (dir, slots)
    }

    #[tokio::test]
    async fn a_pmem_device_is_found_below_its_region() {
        let (dir, slots) = tree(&[
            "virtio-mmio.17/driver",
            "virtio-mmio.17/virtio3/ndbus0/region0/namespace0.0/block/pmem2/queue",
            "virtio-mmio.17/virtio3/ndbus0/region0/btt0.0",
        ]);
        fs::write(dir.path().join("nodes/pmem2"), "").unwrap();
        assert_eq!(slots.device(17, Class::Block).await.unwrap(), "pmem2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_cannot_be_opened_yet_is_waited_for() {
        let (dir, slots) = tree(&["virtio-mmio.17/driver", "virtio-mmio.17/virtio3/ndbus0/block/pmem2"]);
        let node = dir.path().join("nodes/pmem2");
        let (found, ()) = tokio::join!(slots.device(17, Class::Block), async {
            tokio::time::sleep(PAUSE * 10).await;
            fs::write(node, "").unwrap();
        });
        assert_eq!(found.unwrap(), "pmem2");
    }

    #[tokio::test]
    async fn an_unbound_slot_is_bound_by_name() {
        let (dir, slots) = tree(&["virtio-mmio.7/virtio1/net/eth0"]);
        assert_eq!(slots.device(7, Class::Net).await.unwrap(), "eth0");
        let bound = fs::read_to_string(dir.path().join("drivers/virtio-mmio/bind")).unwrap();
        assert_eq!(bound, "virtio-mmio.7");
    }

    #[tokio::test]
    async fn a_slot_that_the_vm_lacks_is_refused() {
        let (_dir, slots) = tree(&[]);
        assert!(matches!(slots.device(40, Class::Net).await, Err(SlotError::NoSlot(40))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_never_appears_is_an_error() {
        let (_dir, slots) = tree(&["virtio-mmio.7/virtio1"]);
        assert!(matches!(slots.device(7, Class::Net).await, Err(SlotError::NoDevice { slot: 7, .. })));
    }

    #[test]
    fn unbinding_an_unbound_slot_does_nothing() {
        let (dir, slots) = tree(&["virtio-mmio.17"]);
        slots.unbind(17).unwrap();
        assert!(!dir.path().join("drivers/virtio-mmio/unbind").exists());
    }
}
