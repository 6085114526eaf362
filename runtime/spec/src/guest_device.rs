//! Character devices built into a Linux guest. A device plugin allotting such a device of the node names it
//! by its usual path. The guest's own device does the same work there, separate from the node's.

use crate::{Device, Mount};

/// A character device of every Linux kernel with its driver. The numbers are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestDevice {
    /// The usual path.
    pub path: &'static str,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// True if every container has the device by default.
    pub is_default: bool,
}

impl GuestDevice {
    /// All of them. None reaches beyond the guest's kernel. Numbers from the kernel's
    /// Documentation/admin-guide/devices.txt.
    pub(crate) const ALL: [GuestDevice; 8] = [
        default("/dev/null", 1, 3),
        default("/dev/zero", 1, 5),
        default("/dev/full", 1, 7),
        default("/dev/random", 1, 8),
        default("/dev/urandom", 1, 9),
        default("/dev/tty", 5, 0),
        asked("/dev/net/tun", 10, 200),
        asked("/dev/fuse", 10, 229),
    ];

    /// Mode of the node as created by the kernel. The kernel itself decides about opening the device.
    pub(crate) const MODE: u32 = 0o666;
}

const fn default(path: &'static str, major: i64, minor: i64) -> GuestDevice {
    GuestDevice { path, major, minor, is_default: true }
}

const fn asked(path: &'static str, major: i64, minor: i64) -> GuestDevice {
    GuestDevice { path, major, minor, is_default: false }
}

impl Mount {
    /// The guest's counterpart of the mounted device of the node: people mount `/dev/null` over files to
    /// empty them.
    pub fn guest_device(&self) -> Option<GuestDevice> {
        let mut defaults = GuestDevice::ALL.into_iter().filter(|device| device.is_default);
        defaults.find(|device| self.image.is_empty() && device.path == self.host_path)
    }
}

impl Device {
    /// The guest's counterpart of this device of the node.
    pub fn guest_device(&self) -> Option<GuestDevice> {
        GuestDevice::ALL.into_iter().find(|device| device.path == self.host_path)
    }

    /// Returns true if no owner and mode other than the kernel's are asked for the node of a guest's device.
    pub(crate) fn is_as_made(&self) -> bool {
        let mode = self.mode.unwrap_or(GuestDevice::MODE);
        let owner = (self.uid.unwrap_or_default(), self.gid.unwrap_or_default());
        (owner, mode) == ((0, 0), GuestDevice::MODE)
    }
}
