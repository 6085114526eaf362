//! The descriptors of a message. The message refers to each by its position.

use std::os::fd::OwnedFd;

use proto_vmm::FdIndex;

/// Descriptors of one message, in order.
#[derive(Debug, Default)]
pub(crate) struct Descriptors(Vec<OwnedFd>);

impl Descriptors {
    /// Adds a descriptor and returns its position.
    pub(crate) fn push(&mut self, fd: OwnedFd) -> FdIndex {
        self.0.push(fd);
        // More than FDS_MAX are refused when the packet is sent.
        FdIndex(u8::try_from(self.0.len() - 1).unwrap_or(u8::MAX))
    }

    /// Returns all of them, in the order of sending.
    pub(crate) fn as_slice(&self) -> &[OwnedFd] {
        &self.0
    }
}
