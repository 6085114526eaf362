//! The share: `fuse-backend-rs`'s pass-through file system over the root of the process. It is changed
//! where the library does too much or too little for an untrusted guest.
//!
//! Unless [`Cache::Always`] says so, nothing is cached in the guest without asking, because the host
//! changes files too. The driver learns of mounts below: each file system keeps device and inode numbers of
//! its own.
//!
//! `requests` has the driver's requests, `reopen` gives a descriptor of a known file, `xattr` has extended
//! attributes and access control lists, `lock` file locks, `identity` the user of a request, `umask` the
//! permissions of new files, `list` lists directories, `lend` the files for the VMM to read and write itself,
//! and `init` offers beyond the library's.

mod identity;
pub(super) mod init;
mod lend;
mod list;
mod listings;
mod lock;
mod reopen;
mod requests;
mod umask;
mod xattr;

pub(super) use umask::separate as separate_umask;

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::FsOptions;
use fuse_backend_rs::api::filesystem::{Entry, FileSystem as _};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use vmm_sys_util::eventfd::EventFd;

use super::locks::{Bounds, LockedFiles};

/// Capabilities for the driver beyond the oldest protocol. It uses those it has.
///
/// With POSIX_ACL the guest's kernel asks for a file's list and decides by it. With DONT_MASK the umask is
/// left to the host's file system, because it knows if a default list takes its place. Without
/// HANDLE_KILLPRIV_V2 a guest's kernel would ask for `security.capability` before each write.
const OPTIONS: [FsOptions; 14] = [
    FsOptions::ASYNC_DIO,
    FsOptions::ASYNC_READ,
    FsOptions::ATOMIC_O_TRUNC,
    FsOptions::AUTO_INVAL_DATA,
    FsOptions::BIG_WRITES,
    FsOptions::DONT_MASK,
    FsOptions::FLOCK_LOCKS,
    FsOptions::HANDLE_KILLPRIV_V2,
    FsOptions::INIT_EXT,
    FsOptions::MAX_PAGES,
    FsOptions::PARALLEL_DIROPS,
    FsOptions::POSIX_ACL,
    FsOptions::POSIX_LOCKS,
    FsOptions::SUBMOUNTS,
];

/// The driver's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Mapped pages only. Each read and write is a request, without a look at the file's attributes.
    None,
    /// The content of a file, while its size and times are the same. Names and attributes are asked for
    /// each time.
    Auto,
    /// The content of a file, and names and attributes for [`KNOWN_FOR`], as if nobody else changed them.
    Always,
}

/// Lifetime of names and attributes with [`Cache::Always`].
const KNOWN_FOR: Duration = Duration::from_hours(24);

/// A directory tree of the host, served to a guest.
pub struct Share {
    files: PassthroughFs,
    /// Lowest descriptor number not used by requests.
    descriptors_max: i32,
    /// To ask for the lowest free descriptor number.
    probe: EventFd,
    mounted: AtomicBool,
    locks: LockedFiles,
    listings: listings::Listings,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("mounted", &self.mounted).finish_non_exhaustive()
    }
}

impl Share {
    /// Serves `root` as it is when a guest mounts it. The process may change its own root meanwhile.
    /// `/proc/self/fd` must be there now, and need not be later. Files and directories held by the guest,
    /// open or known by name, take descriptors. Their numbers stay below `descriptors_max`.
    pub fn open(root: &str, descriptors_max: i32, cache: Cache) -> io::Result<Share> {
        let (cache_policy, known_for) = match cache {
            Cache::None => (CachePolicy::Never, Duration::ZERO),
            Cache::Auto => (CachePolicy::Auto, Duration::ZERO),
            Cache::Always => (CachePolicy::Always, KNOWN_FOR),
        };
        let config = Config {
            root_dir: root.to_owned(),
            entry_timeout: known_for,
            attr_timeout: known_for,
            cache_policy,
            killpriv_v2: true,
            ..Config::default()
        };
        let (files, probe) = (PassthroughFs::new(config)?, EventFd::new(0)?);
        let mounted = AtomicBool::new(false);
        let locks = LockedFiles::new(Bounds::default());
        let listings = listings::Listings::default();
        Ok(Share { files, descriptors_max, probe, mounted, locks, listings })
    }

    /// Forgets everything held by the driver, if it held anything.
    pub(crate) fn forget_all(&self) {
        if self.mounted.swap(false, Ordering::SeqCst) {
            self.locks.clear();
            self.listings.clear();
            self.files.destroy();
        }
    }

    /// Refuses a request if it would take a descriptor needed by others. The kernel gives the lowest free
    /// number.
    fn room(&self) -> io::Result<Room> {
        let lowest = self.probe.try_clone()?.as_raw_fd();
        if lowest >= self.descriptors_max {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        Ok(if lowest < self.descriptors_max / 2 { Room::Plenty } else { Room::Scarce })
    }
}

/// Descriptors left for files that the driver remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Plenty,
    Scarce,
}

impl Room {
    /// Has the driver forget the file with its last user, if descriptors are scarce. A driver with memory to
    /// spare forgets nothing else by itself, and the rest is for files to be opened.
    fn bound(self, entry: Entry) -> Entry {
        match self {
            Room::Plenty => entry,
            Room::Scarce => Entry { entry_timeout: Duration::ZERO, attr_timeout: Duration::ZERO, ..entry },
        }
    }
}
