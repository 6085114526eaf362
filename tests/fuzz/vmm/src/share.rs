//! A share over a small tree with hostile links, and files outside that nobody may read, change or see.
//!
//! ```text
//!   /tree      served: file, dir/inner, fifo, and links: link, up, out, abs, dirlink, loop
//!   /outside   secret, and nothing else
//! ```
//!
//! Each run has a file system of its own in memory, which is the root of the thread that serves, and is mounted nowhere. All of it is
//! bounded by that file system's size. The file system notes each read, so that one outside is seen.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, Timespec, Timestamps};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use vmm_devices::virtio::fs::{Cache, Fs, Share, ShareLink, ShareServer, credentials};

/// Bytes of the file system, and files in it.
const SIZE: &str = "4m";
const FILES: &str = "4096";

/// Lowest descriptor number that the guest's files leave alone.
const DESCRIPTORS_MAX: i32 = 512;

/// Milliseconds until a share must serve.
const READY_MS: u16 = 10_000;

/// Links in the tree, and where they lead.
const LINKS: [(&str, &str); 6] = [
    ("link", "file"),
    ("up", ".."),
    ("out", "../outside/secret"),
    ("abs", "/outside/secret"),
    ("dirlink", "../outside"),
    ("loop", "loop"),
];

/// Names that requests use: those in the tree, new ones, and such that are no names.
pub const NAMES: [&str; 20] = [
    "file",
    "dir",
    "inner",
    "fifo",
    "link",
    "up",
    "out",
    "abs",
    "dirlink",
    "loop",
    "new",
    "other",
    ".",
    "..",
    "secret",
    "../outside/secret",
    "dir/../../outside/secret",
    "/outside/secret",
    "",
    "outside",
];

/// See the module.
#[derive(Debug)]
pub struct Tree {
    mount: OwnedFd,
    secret: [u8; 32],
    outside: Outside,
}

/// The files outside, as nobody changes them.
#[derive(Debug, PartialEq, Eq)]
struct Outside {
    names: Vec<String>,
    attributes: Vec<[i64; 10]>,
}

fn file_system() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", SIZE)?;
    rustix::mount::fsconfig_set_string(&context, "nr_inodes", FILES)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

impl Tree {
    /// A new tree, whose secret begins with `mark`. `None` if this process may not mount.
    #[must_use]
    pub fn new(mark: [u8; 8]) -> Option<Tree> {
        let mount = file_system().ok()?;
        let mut secret = [b's'; 32];
        secret[..8].copy_from_slice(&mark);
        let mut tree = Tree { mount, secret, outside: Outside { names: Vec::new(), attributes: Vec::new() } };
        tree.fill().expect("an empty file system");
        tree.outside = tree.look();
        Some(tree)
    }

    fn path(&self, below: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{below}", self.mount.as_raw_fd()))
    }

    fn fill(&self) -> std::io::Result<()> {
        fs::create_dir(self.path("tree"))?;
        fs::create_dir(self.path("tree/dir"))?;
        fs::create_dir(self.path("outside"))?;
        fs::write(self.path("tree/file"), "content")?;
        fs::write(self.path("tree/dir/inner"), "more")?;
        fs::write(self.path("outside/secret"), self.secret)?;
        rustix::fs::mknodat(CWD, self.path("tree/fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0)?;
        for (name, target) in LINKS {
            symlink(target, self.path("tree").join(name))?;
        }
        // Long ago, so that any read or change is seen whatever the clock's steps are.
        let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: moment, last_modification: moment };
        for path in ["outside/secret", "outside"] {
            rustix::fs::utimensat(CWD, self.path(path), &times, rustix::fs::AtFlags::empty())?;
        }
        Ok(())
    }

    /// Attributes first: to list a directory is to read it.
    fn look(&self) -> Outside {
        let attributes =
            ["outside", "outside/secret"].map(|path| match fs::symlink_metadata(self.path(path)) {
                Ok(found) => [
                    found.ino() as i64,
                    found.mode().into(),
                    found.uid().into(),
                    found.gid().into(),
                    found.nlink() as i64,
                    found.size() as i64,
                    found.atime(),
                    found.mtime(),
                    found.ctime(),
                    found.ctime_nsec(),
                ],
                Err(_) => [-1; 10],
            });
        let mut names: Vec<_> = fs::read_dir(self.path(""))
            .and_then(|entries| {
                entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
            })
            .unwrap_or_default();
        names.sort();
        Outside { names, attributes: attributes.into() }
    }

    /// Fails where anything outside the tree was read or changed.
    pub fn check(&self) {
        let found = self.look();
        assert!(found == self.outside, "outside the share {:?} became {found:?}", self.outside);
        let secret = fs::read(self.path("outside/secret")).expect("it was there a moment ago");
        assert!(secret == self.secret, "the secret was written to");
        let outside = fs::read_dir(self.path("outside")).map(Iterator::count);
        assert!(outside.is_ok_and(|count| count == 1), "the share made something outside");
    }

    /// A device that serves the tree.
    #[must_use]
    pub fn device(&self) -> Fs {
        let share = Share::open("/tree", DESCRIPTORS_MAX, Cache::Auto).expect("a share");
        let root = self.path("");
        let (link, theirs) = ShareLink::pair().expect("descriptors");
        std::thread::spawn(move || {
            // The threads that serve come of this one, and have its root.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).expect("a root of its own");
            rustix::process::chroot(&root).expect("a root of its own");
            rustix::process::chdir("/").expect("a root");
            credentials::keep_capabilities_as_other_users().expect("a thread of root");
            ShareServer::new(theirs).run(share).expect("a link");
        });
        link.wait_until_ready(READY_MS).expect("a share");
        Fs::new("share", link).expect("a tag")
    }
}
