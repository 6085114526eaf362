//! A descriptor of a file known to the driver by its number. The library keeps its own descriptors to
//! itself. It lends one in one request alone, SETUPMAPPING, to open the file anew for a window of memory.
//! The share has no such window and refuses this request of a driver. Here the library is asked in the
//! driver's name.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use fuse_backend_rs::abi::virtio_fs::{RemovemappingOne, SetupmappingFlags};
use fuse_backend_rs::api::filesystem::{Context, FileSystem as _};
use fuse_backend_rs::transport::FsCacheReqHandler;

use super::Share;

impl Share {
    /// Opens a file or directory anew, with a description of the caller's alone. Returns EBADF for anything
    /// else, and for an unknown number.
    pub(super) fn reopen(&self, ctx: &Context, inode: u64, writable: bool) -> io::Result<File> {
        self.room()?;
        let flags = if writable { SetupmappingFlags::WRITE } else { SetupmappingFlags::READ };
        self.as_caller(ctx, || {
            let mut borrower = Borrower::default();
            self.files.setupmapping(ctx, inode, 0, 0, 0, flags.bits(), 0, &mut borrower)?;
            borrower.file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
        })
    }
}

/// Keeps a copy of the library's descriptor.
#[derive(Default)]
struct Borrower {
    file: Option<File>,
}

impl FsCacheReqHandler for Borrower {
    fn map(&mut self, _: u64, _: u64, _: u64, _: u64, fd: RawFd) -> io::Result<()> {
        // SAFETY: the library holds the file open until this call returns.
        let lent = unsafe { BorrowedFd::borrow_raw(fd) };
        self.file = Some(lent.try_clone_to_owned()?.into());
        Ok(())
    }

    fn unmap(&mut self, _: Vec<RemovemappingOne>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }
}
