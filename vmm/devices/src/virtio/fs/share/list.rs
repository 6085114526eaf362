//! Lists directories. The library's own listing looks up every name: one that is removed meanwhile, or cannot
//! be looked up, ends it there. So each open directory has a description for its listing, as a file system
//! has.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::PoisonError;

use fuse_backend_rs::api::filesystem::{Context, DirEntry, FileSystem as _};
use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, StatxFlags, seek, statx};

use super::Share;
use crate::virtio::fs::LISTING_BYTES_MAX;

/// Least bytes of names read at a time: the longest name has a place.
const READ_BYTES_MIN: usize = 1024;

impl Share {
    /// Opens the directory that the library has opened as `handle` for its listing. If this fails, the
    /// library's is closed.
    pub(super) fn open_listing(&self, ctx: &Context, inode: u64, handle: u64, flags: u32) -> io::Result<()> {
        match self.reopen(ctx, inode, false) {
            Ok(directory) => {
                self.listings.insert(handle, directory);
                Ok(())
            }
            Err(error) => {
                let _ = self.files.releasedir(ctx, inode, flags, handle);
                Err(error)
            }
        }
    }

    /// Lists the names from `offset` on, in about `size` bytes. `add` returns 0 for a name that has no room.
    /// Names have the inode numbers of stat(2).
    pub(super) fn list(
        &self,
        ctx: &Context,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let listing = self.listings.find(handle)?;
        let directory = listing.lock().unwrap_or_else(PoisonError::into_inner);
        self.act_as(ctx)?;
        seek(&*directory, SeekFrom::Start(offset))?;
        let mut room = Vec::with_capacity(READ_BYTES_MIN.max(size.min(LISTING_BYTES_MAX) as usize));
        let mut names = RawDir::new(&*directory, room.spare_capacity_mut());
        let mut is_first = true;
        while let Some(found) = names.next() {
            let found = match found {
                Ok(found) => found,
                // Names before it have their places.
                Err(_) if !is_first => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let name = found.file_name();
            let entry = DirEntry {
                ino: number(&directory, name).unwrap_or(found.ino()),
                offset: found.next_entry_cookie(),
                type_: kind(found.file_type()),
                name: name.to_bytes(),
            };
            if add(entry)? == 0 {
                break;
            }
            is_first = false;
        }
        Ok(())
    }
}

/// The inode number of a listed file by stat(2). A mount has another one than the directory below it. A file
/// that does not answer has none, and is listed all the same.
fn number(directory: &File, name: &CStr) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = match name.to_bytes() {
        // Programs expect both names, and drop the first two. The directory above may be the node's own.
        b"." | b".." => statx(directory, c"", flags | AtFlags::EMPTY_PATH, StatxFlags::INO),
        _ => statx(directory, name, flags, StatxFlags::INO),
    };
    stat.ok().map(|stat| stat.stx_ino)
}

/// A kind as getdents64(2) has it: `DT_…`, 0 for unknown.
fn kind(kind: FileType) -> u32 {
    match kind {
        FileType::Unknown => 0,
        known => known.as_raw_mode() >> 12,
    }
}
