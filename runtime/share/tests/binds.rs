//! Binds as a monitor sees them, in a mount namespace of the test's own.

// A helper of a test may end the test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use runtime_share::{Access, Bind, Propagation, ShareError, bind_all, unbind_all};

const NONE: Option<&str> = None;

/// A host: a shared directory and a volume with a filesystem below it.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// `None` where mounting is not allowed.
    fn new() -> Option<Host> {
        if unshare(CloneFlags::CLONE_NEWNS).is_err() {
            eprintln!("skipped: needs the privilege to mount");
            return None;
        }
        mount(NONE, "/", NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE).unwrap();
        let host = Host { dir: tempfile::tempdir().unwrap() };
        for name in ["shared", "volume"] {
            fs::create_dir(host.path(name)).unwrap();
            tmpfs(&host.path(name));
            mount(NONE, &host.path(name), NONE, MsFlags::MS_SHARED, NONE).unwrap();
        }
        fs::create_dir(host.path("volume/below")).unwrap();
        tmpfs(&host.path("volume/below"));
        fs::write(host.path("volume/file"), "one").unwrap();
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn bind(&self, name: &str, access: Access, propagation: Propagation) -> Bind {
        Bind { source: self.path(name), access, propagation }
    }

    fn bind_all(&self, binds: &[Bind]) -> Result<(), ShareError> {
        bind_all(&self.path("shared"), "c1", binds.iter().enumerate())
    }

    fn unbind_all(&self, count: usize) {
        unbind_all(&self.path("shared"), "c1", 0..count).unwrap();
    }

    /// What is mounted in or below the shared directory, beside itself.
    fn mounted(&self) -> usize {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let below = format!("{}/", self.path("shared").display());
        table.lines().filter(|line| line.contains(&below)).count()
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
fn a_directory_and_a_file_are_the_hosts_own() {
    let Some(host) = Host::new() else { return };
    symlink("volume", host.path("link")).unwrap();
    let binds = [host.bind("link", ReadWrite, Private), host.bind("volume/file", ReadWrite, Private)];
    host.bind_all(&binds).unwrap();
    assert_eq!(fs::read(host.path("shared/c1/0/file")).unwrap(), b"one");
    fs::write(host.path("shared/c1/1"), "two").unwrap();
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
        let at = host.path(&format!("shared/c1/{number}"));
        assert_eq!((read_only(&at.join("new")), read_only(&at.join("below/new"))), (top, below), "{number}");
    }
    assert!(!read_only(&host.path("volume/new")) && !read_only(&host.path("volume/below/new")));
    host.unbind_all(3);
}

#[test]
fn a_later_mount_of_the_host_is_seen_where_it_was_asked_for_and_none_goes_back() {
    let Some(host) = Host::new() else { return };
    host.bind_all(&[
        host.bind("volume", ReadWrite, Private),
        host.bind("volume", ReadWrite, HostToContainer),
    ])
    .unwrap();
    fs::create_dir(host.path("volume/late")).unwrap();
    tmpfs(&host.path("volume/late"));
    fs::write(host.path("volume/late/news"), "").unwrap();
    let seen = |path: &str| host.path(path).exists();
    assert_eq!((seen("shared/c1/0/late/news"), seen("shared/c1/1/late/news")), (false, true));
    fs::create_dir(host.path("volume/back")).unwrap();
    tmpfs(&host.path("shared/c1/1/back"));
    fs::write(host.path("shared/c1/1/back/news"), "").unwrap();
    assert!(!seen("volume/back/news"));
    host.unbind_all(2);
    assert_eq!(host.mounted(), 0);
    assert!(seen("volume/late/news"));
}

#[test]
fn what_a_monitor_holds_open_does_not_keep_a_bind() {
    let Some(host) = Host::new() else { return };
    host.bind_all(&[host.bind("volume", ReadWrite, Private)]).unwrap();
    let _held = fs::File::open(host.path("shared/c1/0/file")).unwrap();
    host.unbind_all(1);
    assert_eq!(host.mounted(), 0);
}

#[test]
fn what_cannot_be_bound_is_named_and_leaves_nothing() {
    let Some(host) = Host::new() else { return };
    let _socket = UnixListener::bind(host.path("socket")).unwrap();
    nix::unistd::mkfifo(&host.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(host.path("alone")).unwrap();
    let good = host.bind("volume", ReadWrite, Private);
    for (bad, words) in [
        (host.bind("none", ReadWrite, Private), "none: no such file"),
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
fn links_that_a_guest_left_are_not_followed() {
    let Some(host) = Host::new() else { return };
    fs::create_dir(host.path("elsewhere")).unwrap();
    fs::write(host.path("elsewhere/0"), "").unwrap();
    symlink(host.path("elsewhere"), host.path("shared/c1")).unwrap();
    let error = host.bind_all(&[host.bind("volume/file", ReadWrite, Private)]).unwrap_err();
    assert!(!error.is_refusal(), "{error}");
    assert!(unbind_all(&host.path("shared"), "c1", 0..1).is_err());
    assert!(host.path("elsewhere/0").exists());
}
