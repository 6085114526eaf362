//! A descriptor of a file that the driver knows by its number. The library keeps its own to itself, and lends one out
//! in one request alone: SETUPMAPPING, which opens the file anew for a window of memory. The share has no such window
//! and refuses that request of a driver; the library is asked here in its name.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use fuse_backend_rs::abi::virtio_fs::{RemovemappingOne, SetupmappingFlags};
use fuse_backend_rs::api::filesystem::{Context, FileSystem as _};
use fuse_backend_rs::transport::FsCacheReqHandler;

use super::Share;

impl Share {
    /// Opens a file or directory anew: the description is the caller's alone. EBADF for what is neither, and for a
    /// number that names nothing.
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

/// Keeps what it is shown.
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
