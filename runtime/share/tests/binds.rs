//! Binds as a VMM and as the node see them, in mount namespaces of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{chdir, gettid, pivot_root};
use runtime_share::{
    Access, Below, Bind, Ids, MountNamespace, Owners, Propagation, ShareError, bind_all, compare, unbind_all,
};

const NONE: Option<&str> = None;

/// A host: a shared directory, a volume with a filesystem mounted below it, and a thread with the shared
/// directory as its root.
struct Host {
    dir: tempfile::TempDir,
    vmm: Vmm,
}

/// A thread acting as a VMM: its root is the shared directory. Dropping this ends the thread.
struct Vmm {
    thread: u32,
    _end: Sender<()>,
}

impl Vmm {
    fn start(shared: PathBuf) -> Vmm {
        let (started, ready) = channel();
        let (end, ended) = channel::<()>();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE).unwrap();
            chdir(&shared).unwrap();
            pivot_root(".", ".").unwrap();
            umount2(".", MntFlags::MNT_DETACH).unwrap();
            started.send(gettid().as_raw().cast_unsigned()).unwrap();
            let _ = ended.recv();
        });
        Vmm { thread: ready.recv().unwrap(), _end: end }
    }
}

impl Host {
    /// `None` where mounting is not allowed.
    fn new() -> Option<Host> {
        if unshare(CloneFlags::CLONE_NEWNS).is_err() {
            eprintln!("skipped: needs the privilege to mount");
            return None;
        }
        mount(NONE, "/", NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for name in ["shared", "volume"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            tmpfs(&dir.path().join(name));
        }
        mount(NONE, &dir.path().join("volume"), NONE, MsFlags::MS_SHARED, NONE).unwrap();
        let host = Host { vmm: Vmm::start(dir.path().join("shared")), dir };
        fs::create_dir(host.path("volume/below")).unwrap();
        tmpfs(&host.path("volume/below"));
        fs::write(host.path("volume/file"), "one").unwrap();
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of a name in the shared directory, as the VMM sees it.
    fn seen(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.vmm.thread)).join(name)
    }

    fn bind(&self, name: &str, access: Access, propagation: Propagation) -> Bind {
        Bind { source: self.path(name), must_exist: false, access, propagation, owners: None }
    }

    fn bind_all(&self, binds: &[Bind]) -> Result<(), ShareError> {
        self.bind_while(binds, || true)
    }

    /// Binds for a caller that waits as long as `waits` says so.
    fn bind_while(&self, binds: &[Bind], waits: impl Fn() -> bool) -> Result<(), ShareError> {
        let namespace = MountNamespace::of(self.vmm.thread).unwrap();
        bind_all(&namespace, &self.path("shared"), "c1", binds.iter().enumerate(), || !waits())
    }

    fn unbind_all(&self, count: usize) {
        let namespace = MountNamespace::of(self.vmm.thread).unwrap();
        unbind_all(Some(&namespace), &self.path("shared"), "c1", 0..count).unwrap();
    }

    /// Returns the number of the VMM's mounts, without its root.
    fn mounted(&self) -> usize {
        self.mounts().lines().count() - 1
    }

    /// Returns the table of the VMM's mounts.
    fn mounts(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.vmm.thread)).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for name in ["shared", "volume"] {
            let _ = umount2(&self.path(name), MntFlags::MNT_DETACH);
        }
    }
}

fn tmpfs(at: &Path) {
    mount(Some("none"), at, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
}

fn read_only(path: &Path) -> bool {
    match fs::write(path, "x") {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{}: {error}", path.display());
            true
        }
    }
}

use Access::{ReadOnly, ReadOnlyRecursive, ReadWrite};
use Propagation::{HostToContainer, Private};

#[test]
fn a_place_is_the_same_as_long_as_file_and_mounts_are() {
    let Some(host) = Host::new() else { return };
    fs::create_dir(host.path("volume/plain")).unwrap();
    let names = ["volume", "volume/plain", "volume/file"];
    host.bind_all(&names.map(|name| host.bind(name, ReadWrite, Private))).unwrap();
    let same = |number, name: &str| {
        compare(host.vmm.thread, &host.path("shared"), ("c1", number), &host.path(name), ReadWrite).unwrap()
    };
    let found = [same(0, "volume"), same(1, "volume/plain"), same(2, "volume/file")];
    assert_eq!(found, [Some(Below::Mounts), Some(Below::Nothing), Some(Below::Nothing)]);
    assert_eq!([same(0, "volume/plain"), same(1, "volume/file"), same(3, "volume")], [None; 3]);
    // A mount that came later, and one that went.
    tmpfs(&host.path("volume/plain"));
    assert_eq!([same(0, "volume"), same(1, "volume/plain")], [None; 2]);
    umount2(&host.path("volume/plain"), MntFlags::empty()).unwrap();
    assert_eq!([same(0, "volume"), same(1, "volume/plain")], [Some(Below::Mounts), Some(Below::Nothing)]);
    // Mounted for reading by now, and for writing again.
    for below in ["volume", "volume/below"] {
        for (flags, found) in [(MsFlags::MS_RDONLY, None), (MsFlags::empty(), Some(Below::Mounts))] {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags;
            mount(NONE, &host.path(below), NONE, flags, NONE).unwrap();
            assert_eq!(same(0, "volume"), found, "{below}");
        }
    }
    umount2(&host.path("volume/below"), MntFlags::empty()).unwrap();
    assert_eq!(same(0, "volume"), None);
    // A file of the same name.
    fs::rename(host.path("volume/file"), host.path("volume/old")).unwrap();
    fs::write(host.path("volume/file"), "").unwrap();
    assert_eq!((same(2, "volume/file"), same(2, "volume/old")), (None, Some(Below::Nothing)));
    host.unbind_all(3);
    assert_eq!(same(1, "volume/plain"), None);
}

#[test]
fn a_directory_and_a_file_are_the_hosts_own() {
    let Some(host) = Host::new() else { return };
    symlink("volume", host.path("link")).unwrap();
    let binds = [host.bind("link", ReadWrite, Private), host.bind("volume/file", ReadWrite, Private)];
    host.bind_all(&binds).unwrap();
    assert_eq!(fs::read(host.seen("c1/0/file")).unwrap(), b"one");
    fs::write(host.seen("c1/1"), "two").unwrap();
    assert_eq!(fs::read(host.path("volume/file")).unwrap(), b"two");
    host.unbind_all(2);
    assert_eq!((host.mounted(), host.path("shared/c1").exists()), (0, false));
    assert_eq!(fs::read(host.path("volume/file")).unwrap(), b"two");
    host.unbind_all(2);
}

#[test]
fn read_only_is_the_mount_alone_or_all_below() {
    let Some(host) = Host::new() else { return };
    let binds = [ReadWrite, ReadOnly, ReadOnlyRecursive].map(|access| host.bind("volume", access, Private));
    host.bind_all(&binds).unwrap();
    for (number, top, below) in [(0, false, false), (1, true, false), (2, true, true)] {
        let at = host.seen(&format!("c1/{number}"));
        assert_eq!((read_only(&at.join("new")), read_only(&at.join("below/new"))), (top, below), "{number}");
    }
    assert!(!read_only(&host.path("volume/new")) && !read_only(&host.path("volume/below/new")));
    host.unbind_all(3);
}

#[test]
fn no_device_of_the_node_is_opened_through_a_volume() {
    let Some(host) = Host::new() else { return };
    let null = makedev(1, 3);
    for name in ["volume/null", "volume/below/null"] {
        mknod(&host.path(name), SFlag::S_IFCHR, Mode::S_IRUSR, null).unwrap();
    }
    if fs::File::open(host.path("volume/null")).is_err() {
        eprintln!("skipped: needs a file system with devices");
        return;
    }
    let binds = [ReadWrite, ReadOnly].map(|access| host.bind("volume", access, HostToContainer));
    host.bind_all(&binds).unwrap();
    for name in ["c1/0/null", "c1/0/below/null", "c1/1/null", "c1/1/below/null"] {
        let refused = fs::File::open(host.seen(name)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{name}: {refused}");
    }
    host.unbind_all(2);
}

#[test]
fn a_later_mount_of_the_host_is_seen_where_it_was_asked_for() {
    let Some(host) = Host::new() else { return };
    host.bind_all(&[
        host.bind("volume", ReadWrite, Private),
        host.bind("volume", ReadWrite, HostToContainer),
    ])
    .unwrap();
    fs::create_dir(host.path("volume/late")).unwrap();
    tmpfs(&host.path("volume/late"));
    fs::write(host.path("volume/late/news"), "").unwrap();
    let seen = |path: &str| host.seen(path).exists();
    assert_eq!((seen("c1/0/late/news"), seen("c1/1/late/news")), (false, true));
    host.unbind_all(2);
    assert_eq!(host.mounted(), 0);
    assert!(host.path("volume/late/news").exists());
}

#[test]
fn the_node_has_none_of_the_mounts_and_may_unmount_and_remove_what_is_bound() {
    let Some(host) = Host::new() else { return };
    let table = || fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let before = table();
    host.bind_all(&[host.bind("volume", ReadWrite, Private)]).unwrap();
    assert_eq!(table(), before);
    fs::write(host.path("volume/below/file"), "held").unwrap();
    umount2(&host.path("volume/below"), MntFlags::empty()).unwrap();
    assert_eq!(fs::read(host.seen("c1/0/below/file")).unwrap(), b"held");
    fs::remove_dir(host.path("volume/below")).unwrap();
    host.unbind_all(1);
    assert_eq!((host.mounted(), host.path("shared/c1").exists()), (0, false));
}

#[test]
fn after_the_end_of_a_vmm_the_places_are_cleared() {
    let Some(host) = Host::new() else { return };
    let binds = [host.bind("volume", ReadWrite, Private), host.bind("volume/file", ReadWrite, Private)];
    host.bind_all(&binds).unwrap();
    assert!(host.path("shared/c1/1").exists());
    unbind_all(None, &host.path("shared"), "c1", 0..2).unwrap();
    assert!(!host.path("shared/c1").exists());
    assert!(host.path("volume/below").exists() && host.path("volume/file").exists());
}

#[test]
fn nothing_is_mounted_in_a_namespace_with_another_root() {
    let Some(host) = Host::new() else { return };
    let own = MountNamespace::of(gettid().as_raw().cast_unsigned()).unwrap();
    let bind = host.bind("volume", ReadWrite, Private);
    let error = bind_all(&own, &host.path("shared"), "c1", [(0, &bind)], || false).unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("shared directory"), "{error}");
    assert!(!host.path("shared/c1").exists());
}

#[test]
fn a_file_that_a_vmm_holds_open_does_not_keep_its_bind() {
    let Some(host) = Host::new() else { return };
    host.bind_all(&[host.bind("volume", ReadWrite, Private)]).unwrap();
    let _held = fs::File::open(host.seen("c1/0/file")).unwrap();
    host.unbind_all(1);
    assert_eq!(host.mounted(), 0);
}

#[test]
fn a_path_that_cannot_be_bound_is_named_and_leaves_nothing() {
    let Some(host) = Host::new() else { return };
    let _socket = UnixListener::bind(host.path("socket")).unwrap();
    nix::unistd::mkfifo(&host.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(host.path("alone")).unwrap();
    let good = host.bind("volume", ReadWrite, Private);
    for (bad, words) in [
        (host.bind("volume/file/x", ReadWrite, Private), "file/x: no such file"),
        (host.bind("socket", ReadWrite, Private), "socket of the node"),
        (host.bind("pipe", ReadWrite, Private), "named pipe of the node"),
        (host.bind("alone", ReadWrite, HostToContainer), "neither shared nor a slave"),
        (Bind { source: "/dev/null".into(), ..good.clone() }, "/dev/null: a device"),
    ] {
        let error = host.bind_all(&[good.clone(), bad]).unwrap_err();
        assert!(error.to_string().contains(words) && error.is_refusal(), "{error}");
        assert_eq!((host.mounted(), host.path("shared/c1").exists()), (0, false));
    }
}

#[test]
fn a_source_that_is_not_there_becomes_a_directory() {
    let Some(host) = Host::new() else { return };
    host.bind_all(&[host.bind("made/below", ReadWrite, Private)]).unwrap();
    fs::write(host.seen("c1/0/file"), "x").unwrap();
    assert_eq!(fs::read(host.path("made/below/file")).unwrap(), b"x");
    host.unbind_all(1);
}

#[test]
fn a_source_that_must_exist_is_refused_if_it_is_not_there() {
    let Some(host) = Host::new() else { return };
    let bind = |name| Bind { must_exist: true, ..host.bind(name, ReadWrite, Private) };
    for name in ["missing", "missing/below", "volume/missing"] {
        let error = host.bind_all(&[bind("volume"), bind(name)]).unwrap_err();
        assert!(matches!(&error, ShareError::Missing { path } if *path == host.path(name)), "{error}");
        assert!(error.is_refusal() && !host.path(name).exists(), "{error}");
    }
    assert!(!host.path("missing").exists());
    host.bind_all(&[bind("volume/file")]).unwrap();
    host.unbind_all(1);
}

#[test]
fn nothing_is_bound_for_a_caller_that_has_given_up() {
    let Some(host) = Host::new() else { return };
    let binds = [host.bind("volume", ReadWrite, Private), host.bind("made", ReadWrite, Private)];
    // The caller gives up after another check each time.
    for patience in 0.. {
        let checks = Cell::new(0);
        let waits = || checks.replace(checks.get() + 1) < patience;
        match host.bind_while(&binds, waits) {
            Err(error) => assert!(matches!(error, ShareError::GivenUp) && !error.is_refusal(), "{error}"),
            Ok(()) => {
                assert_eq!(patience, 4, "before each path, before the directory is made, and in the end");
                break;
            }
        }
        assert_eq!((host.mounted(), host.path("shared/c1").exists()), (0, false), "{patience}");
        assert_eq!(host.path("made").exists(), patience >= 2, "{patience}");
    }
    host.unbind_all(2);
}

/// The daemon of one automount: mounts it at its first argument, and answers its first access with a file
/// system, or with an error if there is a second argument. It ends with its standard input. Accesses of its
/// process group are none. The messages and numbers are those of `include/uapi/linux/auto_fs.h`.
const AUTOMOUNTER: &str = r#"
import ctypes, fcntl, os, select, struct, sys
at, libc = sys.argv[1], ctypes.CDLL(None)
def mount(kind, options):
    return libc.mount(b"test", at.encode(), kind, 0, options.encode())
asked, asks = os.pipe()
made = mount(b"autofs", f"fd={asks},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct") == 0
print("mounted" if made else "not here", flush=True)
if not made: sys.exit()
root = os.open(at, os.O_RDONLY)
if asked not in select.select([asked, sys.stdin], [], [])[0]: sys.exit()
token, = struct.unpack_from("I", os.read(asked, 4096), 8)
READY, FAIL = 0x9360, 0x9361
if len(sys.argv) == 2:
    mount(b"tmpfs", "")
    open(f"{at}/file", "w").write("mounted late")
fcntl.ioctl(root, READY if len(sys.argv) == 2 else FAIL, token)
sys.stdin.read()
"#;

/// Mounts an automount. `None` where the kernel has none.
fn automount(at: &Path, fails: bool) -> Option<Child> {
    let mut command = Command::new("python3");
    command.args(["-c", AUTOMOUNTER]).arg(at).args(fails.then_some("fails")).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    if answer != "mounted\n" {
        eprintln!("skipped: needs a kernel with autofs");
        child.wait().unwrap();
        return None;
    }
    Some(child)
}

#[test]
fn what_the_node_mounts_at_the_first_access_is_mounted_and_bound() {
    let Some(host) = Host::new() else { return };
    for (name, fails) in [("works", false), ("fails", true)] {
        fs::create_dir(host.path(name)).unwrap();
        let Some(mut automounter) = automount(&host.path(name), fails) else { return };
        let bound = host.bind_all(&[host.bind(name, ReadWrite, Private)]);
        if fails {
            let error = bound.unwrap_err();
            assert!(
                error.to_string().starts_with("cannot enter host path") && !error.is_refusal(),
                "{error}"
            );
            assert!(!host.path("shared/c1").exists());
        } else {
            bound.unwrap();
            assert!(!host.mounts().contains(" - autofs "), "{}", host.mounts());
            assert_eq!(fs::read(host.seen("c1/0/file")).unwrap(), b"mounted late");
            host.unbind_all(1);
            umount2(&host.path(name), MntFlags::empty()).unwrap();
        }
        umount2(&host.path(name), MntFlags::MNT_DETACH).unwrap();
        drop(automounter.stdin.take());
        assert!(automounter.wait().unwrap().success());
    }
}

#[test]
fn links_that_a_guest_left_are_not_followed() {
    let Some(host) = Host::new() else { return };
    fs::create_dir(host.path("elsewhere")).unwrap();
    fs::write(host.path("elsewhere/0"), "").unwrap();
    symlink(host.path("elsewhere"), host.path("shared/c1")).unwrap();
    let error = host.bind_all(&[host.bind("volume/file", ReadWrite, Private)]).unwrap_err();
    assert!(!error.is_refusal(), "{error}");
    assert!(unbind_all(None, &host.path("shared"), "c1", 0..1).is_err());
    assert!(host.path("elsewhere/0").exists());
}

#[test]
fn owners_are_mapped_all_over_the_tree_or_the_bind_is_refused() {
    let Some(host) = Host::new() else { return };
    let owned = |name: &str, id| {
        fs::write(host.path(name), "").unwrap();
        chown(host.path(name), Some(id), Some(id)).unwrap();
    };
    owned("volume/five", 5);
    owned("volume/below/zero", 0);
    owned("volume/beyond", 20);
    let owners =
        Some(Owners { uids: Ids { shown_as: 1000, length: 10 }, gids: Ids { shown_as: 2000, length: 20 } });
    let mapped = Bind { owners, ..host.bind("volume", Access::ReadWrite, Propagation::Private) };
    host.bind_all(&[mapped.clone(), mapped.clone()]).unwrap();
    let shown = |name: &str| {
        let found = fs::metadata(host.seen("c1/1").join(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!((shown("five"), shown("below/zero")), ((1005, 2005), (1000, 2000)));
    // The kernel's overflow ids.
    assert_eq!(shown("beyond"), (65534, 65534));
    host.unbind_all(2);
    let error = host.bind_all(&[Bind { source: "/proc/sys".into(), ..mapped }]).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("/proc/sys: mounts.uid_mappings"), "{error}");
    assert_eq!(host.mounted(), 0);
}
