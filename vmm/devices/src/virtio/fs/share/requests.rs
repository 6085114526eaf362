//! The requests of a driver to a share. Unless a comment says more, a call is passed on as it is.

use std::ffi::CStr;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{ATTR_SUBMOUNT, CreateIn, FsOptions, OpenOptions, SetattrValid, stat64};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileLock, FileSystem, GetxattrReply, ListxattrReply, ZeroCopyReader,
    ZeroCopyWriter,
};

use super::umask::Umask;
use super::{OPTIONS, Share};
use crate::virtio::fs::locks::LockRequest;

/// The flags of a read or write that the library may set on its description. With O_ASYNC the process would
/// get signals, and its filter ends it.
fn settable(flags: u32) -> u32 {
    flags & !(libc::O_ASYNC as u32)
}

impl FileSystem for Share {
    type Inode = u64;
    type Handle = u64;

    fn init(&self, capable: FsOptions) -> io::Result<FsOptions> {
        self.forget_all();
        self.files.init(capable)?;
        self.mounted.store(true, Ordering::SeqCst);
        Ok(OPTIONS.into_iter().fold(FsOptions::empty(), |all, one| all | one))
    }

    fn destroy(&self) {
        self.forget_all();
    }

    fn lookup(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        let room = self.room()?;
        let mut entry = room.bound(self.as_caller(ctx, || self.files.lookup(ctx, parent, name))?);
        let directory = entry.attr.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if directory && !matches!(name.to_bytes(), b"." | b"..") {
            let (above, _) = self.getattr(ctx, parent, None)?;
            if above.st_dev != entry.attr.st_dev {
                entry.attr_flags |= ATTR_SUBMOUNT;
            }
        }
        Ok(entry)
    }

    fn forget(&self, ctx: &Context, inode: u64, count: u64) {
        self.files.forget(ctx, inode, count);
    }

    fn batch_forget(&self, ctx: &Context, requests: Vec<(u64, u64)>) {
        self.files.batch_forget(ctx, requests);
    }

    fn getattr(&self, ctx: &Context, inode: u64, handle: Option<u64>) -> io::Result<(stat64, Duration)> {
        self.as_caller(ctx, || self.files.getattr(ctx, inode, handle))
    }

    fn setattr(
        &self,
        ctx: &Context,
        inode: u64,
        attr: stat64,
        handle: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        self.as_caller(ctx, || self.files.setattr(ctx, inode, attr, handle, valid))
    }

    fn readlink(&self, ctx: &Context, inode: u64) -> io::Result<Vec<u8>> {
        self.as_caller(ctx, || self.files.readlink(ctx, inode))
    }

    fn symlink(&self, ctx: &Context, target: &CStr, parent: u64, name: &CStr) -> io::Result<Entry> {
        let room = self.room()?;
        self.making(ctx, |ctx| self.files.symlink(ctx, target, parent, name)).map(|made| room.bound(made))
    }

    /// Makes no device nodes: on the host they would be devices.
    fn mknod(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        if matches!(mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let room = self.room()?;
        let _umask = Umask::of_this_thread(umask);
        let made = self.making(ctx, |ctx| self.files.mknod(ctx, parent, name, mode, rdev, 0));
        made.map(|made| room.bound(made))
    }

    fn mkdir(&self, ctx: &Context, parent: u64, name: &CStr, mode: u32, umask: u32) -> io::Result<Entry> {
        let room = self.room()?;
        let _umask = Umask::of_this_thread(umask);
        let made = self.making(ctx, |ctx| self.files.mkdir(ctx, parent, name, mode, 0));
        made.map(|made| room.bound(made))
    }

    fn unlink(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.as_caller(ctx, || self.files.unlink(ctx, parent, name))
    }

    fn rmdir(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.as_caller(ctx, || self.files.rmdir(ctx, parent, name))
    }

    fn rename(
        &self,
        ctx: &Context,
        old_parent: u64,
        old_name: &CStr,
        new_parent: u64,
        new_name: &CStr,
        flags: u32,
    ) -> io::Result<()> {
        self.as_caller(ctx, || self.files.rename(ctx, old_parent, old_name, new_parent, new_name, flags))
    }

    fn link(&self, ctx: &Context, inode: u64, parent: u64, name: &CStr) -> io::Result<Entry> {
        let room = self.room()?;
        self.as_caller(ctx, || self.files.link(ctx, inode, parent, name)).map(|made| room.bound(made))
    }

    fn open(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
        fuse_flags: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        self.room()?;
        self.as_caller(ctx, || self.files.open(ctx, inode, flags, fuse_flags))
    }

    fn create(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        let room = self.room()?;
        let _umask = Umask::of_this_thread(args.umask);
        let made =
            self.making(ctx, |ctx| self.files.create(ctx, parent, name, CreateIn { umask: 0, ..args }));
        made.map(|(entry, handle, options, flags)| (room.bound(entry), handle, options, flags))
    }

    fn read(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        to: &mut dyn ZeroCopyWriter,
        size: u32,
        offset: u64,
        lock_owner: Option<u64>,
        flags: u32,
    ) -> io::Result<usize> {
        self.files.read(ctx, inode, handle, to, size, offset, lock_owner, settable(flags))
    }

    fn write(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        from: &mut dyn ZeroCopyReader,
        size: u32,
        offset: u64,
        lock_owner: Option<u64>,
        delayed: bool,
        flags: u32,
        fuse_flags: u32,
    ) -> io::Result<usize> {
        let flags = settable(flags);
        self.files.write(ctx, inode, handle, from, size, offset, lock_owner, delayed, flags, fuse_flags)
    }

    fn flush(&self, ctx: &Context, inode: u64, handle: u64, lock_owner: u64) -> io::Result<()> {
        self.close_owner(inode, lock_owner);
        self.files.flush(ctx, inode, handle, lock_owner)
    }

    fn fsync(&self, ctx: &Context, inode: u64, data_only: bool, handle: u64) -> io::Result<()> {
        self.files.fsync(ctx, inode, data_only, handle)
    }

    fn fallocate(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        self.files.fallocate(ctx, inode, handle, mode, offset, length)
    }

    fn release(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
        handle: u64,
        flush: bool,
        flock_release: bool,
        lock_owner: Option<u64>,
    ) -> io::Result<()> {
        self.close_handle(inode, handle, lock_owner.filter(|_| flock_release));
        self.files.release(ctx, inode, flags, handle, flush, flock_release, lock_owner)
    }

    fn statfs(&self, ctx: &Context, inode: u64) -> io::Result<libc::statvfs64> {
        self.as_caller(ctx, || self.files.statfs(ctx, inode))
    }

    fn opendir(&self, ctx: &Context, inode: u64, flags: u32) -> io::Result<(Option<u64>, OpenOptions)> {
        self.room()?;
        let opened = self.as_caller(ctx, || self.files.opendir(ctx, inode, flags))?;
        if let Some(handle) = opened.0 {
            self.open_listing(ctx, inode, handle, flags)?;
        }
        Ok(opened)
    }

    fn readdir(
        &self,
        ctx: &Context,
        _inode: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add_entry: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.list(ctx, handle, size, offset, add_entry)
    }

    fn fsyncdir(&self, ctx: &Context, inode: u64, data_only: bool, handle: u64) -> io::Result<()> {
        self.files.fsyncdir(ctx, inode, data_only, handle)
    }

    fn releasedir(&self, ctx: &Context, inode: u64, flags: u32, handle: u64) -> io::Result<()> {
        self.listings.remove(handle);
        self.files.releasedir(ctx, inode, flags, handle)
    }

    fn getlk(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        owner: u64,
        lock: FileLock,
        flags: u32,
    ) -> io::Result<FileLock> {
        self.find_lock(&LockRequest { context: *ctx, inode, handle, owner, lock, flags })
    }

    /// Does not wait. `fs::worker` keeps waiting requests and does not pass them on here.
    fn setlk(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        owner: u64,
        lock: FileLock,
        flags: u32,
    ) -> io::Result<()> {
        self.lock(&LockRequest { context: *ctx, inode, handle, owner, lock, flags }, false)
    }

    fn setxattr(&self, ctx: &Context, inode: u64, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        self.as_caller(ctx, || self.set_attribute(ctx, inode, name, value, flags))
    }

    fn getxattr(&self, ctx: &Context, inode: u64, name: &CStr, size: u32) -> io::Result<GetxattrReply> {
        self.as_caller(ctx, || self.get_attribute(ctx, inode, name, size))
    }

    fn listxattr(&self, ctx: &Context, inode: u64, size: u32) -> io::Result<ListxattrReply> {
        self.as_caller(ctx, || self.list_attributes(ctx, inode, size))
    }

    fn removexattr(&self, ctx: &Context, inode: u64, name: &CStr) -> io::Result<()> {
        self.as_caller(ctx, || self.remove_attribute(ctx, inode, name))
    }

    fn lseek(&self, ctx: &Context, inode: u64, handle: u64, offset: u64, whence: u32) -> io::Result<u64> {
        self.files.lseek(ctx, inode, handle, offset, whence)
    }
}
