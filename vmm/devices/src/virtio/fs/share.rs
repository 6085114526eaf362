//! The share: `fuse-backend-rs`'s pass-through file system over the root of the process, changed where that
//! would do too much or too little for a guest that nobody trusts.
//!
//! Nothing is cached in the guest without asking: the host changes files too. The driver learns of mounts
//! below, so that each file system keeps device and inode numbers of its own.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{ATTR_SUBMOUNT, CreateIn, FsOptions, OpenOptions, SetattrValid, stat64};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, ZeroCopyReader, ZeroCopyWriter,
};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use vmm_sys_util::eventfd::EventFd;

use super::LISTING_BYTES_MAX;

/// Capabilities that the driver may use beyond the oldest protocol, where it can.
const OPTIONS: [FsOptions; 8] = [
    FsOptions::ASYNC_READ,
    FsOptions::ATOMIC_O_TRUNC,
    FsOptions::AUTO_INVAL_DATA,
    FsOptions::BIG_WRITES,
    FsOptions::INIT_EXT,
    FsOptions::MAX_PAGES,
    FsOptions::PARALLEL_DIROPS,
    FsOptions::SUBMOUNTS,
];

/// The bits of a mode that a umask takes away (umask(2)).
const PERMISSIONS: u32 = 0o777;

/// A directory tree of the host, served to a guest.
pub struct Share {
    files: PassthroughFs,
    /// Lowest descriptor number that requests leave alone.
    descriptors_max: i32,
    /// To ask for the lowest free descriptor number.
    probe: EventFd,
    mounted: AtomicBool,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("mounted", &self.mounted).finish_non_exhaustive()
    }
}

impl Share {
    /// Serves `root` as it is when a guest mounts it: the process may change its own root meanwhile.
    /// `/proc/self/fd` must be there now, and need not be later. Files and directories that the guest
    /// holds, open or known by name, take descriptors, whose numbers stay below `descriptors_max`.
    pub fn open(root: &str, descriptors_max: i32) -> io::Result<Share> {
        let config = Config {
            root_dir: root.to_owned(),
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
            cache_policy: CachePolicy::Auto,
            ..Config::default()
        };
        let (files, probe) = (PassthroughFs::new(config)?, EventFd::new(0)?);
        Ok(Share { files, descriptors_max, probe, mounted: AtomicBool::new(false) })
    }

    /// Whether the driver has it mounted.
    pub(crate) fn mounted(&self) -> bool {
        self.mounted.load(Ordering::SeqCst)
    }

    /// Forgets all that the driver held, if it held anything.
    pub(crate) fn forget_all(&self) {
        if self.mounted.swap(false, Ordering::SeqCst) {
            self.files.destroy();
        }
    }

    /// Refuses what would take a descriptor that others need. The kernel gives the lowest free number.
    fn room(&self) -> io::Result<()> {
        let lowest = self.probe.try_clone()?;
        if lowest.as_raw_fd() >= self.descriptors_max {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        Ok(())
    }
}

/// Where nothing else is said, a call is passed on as it is.
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
        self.room()?;
        let mut entry = self.files.lookup(ctx, parent, name)?;
        let directory = entry.attr.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if directory && !matches!(name.to_bytes(), b"." | b"..") {
            let (above, _) = self.files.getattr(ctx, parent, None)?;
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
        self.files.getattr(ctx, inode, handle)
    }

    fn setattr(
        &self,
        ctx: &Context,
        inode: u64,
        attr: stat64,
        handle: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        self.files.setattr(ctx, inode, attr, handle, valid)
    }

    fn readlink(&self, ctx: &Context, inode: u64) -> io::Result<Vec<u8>> {
        self.files.readlink(ctx, inode)
    }

    fn symlink(&self, ctx: &Context, target: &CStr, parent: u64, name: &CStr) -> io::Result<Entry> {
        self.room()?;
        self.files.symlink(ctx, target, parent, name)
    }

    /// Makes no device nodes: on the host they would be devices. A umask has permissions alone: the bits above them would
    /// be taken out of the type after the look at it, and leave another type.
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
        self.room()?;
        self.files.mknod(ctx, parent, name, mode, rdev, umask & PERMISSIONS)
    }

    fn mkdir(&self, ctx: &Context, parent: u64, name: &CStr, mode: u32, umask: u32) -> io::Result<Entry> {
        self.room()?;
        self.files.mkdir(ctx, parent, name, mode, umask)
    }

    fn unlink(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.files.unlink(ctx, parent, name)
    }

    fn rmdir(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.files.rmdir(ctx, parent, name)
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
        self.files.rename(ctx, old_parent, old_name, new_parent, new_name, flags)
    }

    fn link(&self, ctx: &Context, inode: u64, parent: u64, name: &CStr) -> io::Result<Entry> {
        self.room()?;
        self.files.link(ctx, inode, parent, name)
    }

    fn open(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
        fuse_flags: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        self.room()?;
        self.files.open(ctx, inode, flags, fuse_flags)
    }

    fn create(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        self.room()?;
        self.files.create(ctx, parent, name, args)
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
        self.files.read(ctx, inode, handle, to, size, offset, lock_owner, flags)
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
        self.files.write(ctx, inode, handle, from, size, offset, lock_owner, delayed, flags, fuse_flags)
    }

    fn flush(&self, ctx: &Context, inode: u64, handle: u64, lock_owner: u64) -> io::Result<()> {
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
        self.files.release(ctx, inode, flags, handle, flush, flock_release, lock_owner)
    }

    fn statfs(&self, ctx: &Context, inode: u64) -> io::Result<libc::statvfs64> {
        self.files.statfs(ctx, inode)
    }

    fn opendir(&self, ctx: &Context, inode: u64, flags: u32) -> io::Result<(Option<u64>, OpenOptions)> {
        self.room()?;
        self.files.opendir(ctx, inode, flags)
    }

    /// Names with the inode numbers that `stat` shows too; the library's own listing shows its numbers.
    fn readdir(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add_entry: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.room()?;
        let size = size.min(LISTING_BYTES_MAX);
        self.files.readdirplus(ctx, inode, handle, size, offset, &mut |name, entry| {
            let added = add_entry(name)?;
            // What did not fit is let go of by the library.
            if added > 0 {
                self.files.forget(ctx, entry.inode, 1);
            }
            Ok(added)
        })
    }

    fn fsyncdir(&self, ctx: &Context, inode: u64, data_only: bool, handle: u64) -> io::Result<()> {
        self.files.fsyncdir(ctx, inode, data_only, handle)
    }

    fn releasedir(&self, ctx: &Context, inode: u64, flags: u32, handle: u64) -> io::Result<()> {
        self.files.releasedir(ctx, inode, flags, handle)
    }

    fn lseek(&self, ctx: &Context, inode: u64, handle: u64, offset: u64, whence: u32) -> io::Result<u64> {
        self.files.lseek(ctx, inode, handle, offset, whence)
    }
}
