//! Inspection of a device node named by another source than a CDI file.

use crate::edits::DeviceNode;
use crate::node::look;

impl DeviceNode {
    /// The device node with the file now found at its path on the node. May block on the disk.
    #[must_use]
    pub fn looked_at(mut self) -> DeviceNode {
        self.found = look(&self.host_path);
        self
    }
}
