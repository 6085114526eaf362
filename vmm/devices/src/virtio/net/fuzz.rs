//! An interface without a tap, for `tests/fuzz` only.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::Net;
use super::receive::Filter;
use super::tap::TapSettings;

/// Settings without a tap: there are none.
#[derive(Debug)]
struct NoTap;

impl TapSettings for NoTap {
    fn offload(&self, _tap: BorrowedFd<'_>, _offloads: u32) -> io::Result<()> {
        Ok(())
    }

    fn filter(&self, _tap: BorrowedFd<'_>, _filter: Option<&Filter>) -> io::Result<()> {
        Ok(())
    }
}

/// An interface over a packet socket. The socket never blocks.
#[must_use]
pub fn over_socket(link: OwnedFd, mac: [u8; 6], mtu: u16) -> Net {
    Net::over(link, mac, mtu, Arc::new(NoTap))
}
