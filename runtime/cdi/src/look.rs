//! A device node that somebody else than a CDI file names, and what the node has there.

use crate::edits::DeviceNode;
use crate::node::look;

impl DeviceNode {
    /// The device node with what is at its path on the node now. May wait for a disk.
    #[must_use]
    pub fn looked_at(mut self) -> DeviceNode {
        self.found = look(&self.host_path);
        self
    }
}
