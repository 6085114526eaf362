//! Installations and removals killed before each of their changes, or faced with a failing disk, and then
//! repeated.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::node::{Files, Node};
use crate::install::InstallError;
use crate::root::HostRoot;

/// More changes than an installation or a removal has.
const CHANGES_MAX: u32 = 500;

fn installed() -> Files {
    let node = Node::new();
    node.install().unwrap();
    node.files(true)
}

fn no_leftover(files: &Files) {
    let new = files.keys().find(|path| path.to_string_lossy().contains(".podvisor-new"));
    assert_eq!(new, None);
}

#[test]
fn an_installation_that_is_killed_before_any_change_is_completed_by_the_next() {
    let expected = installed();
    let mut killed = 0;
    for count in 0..CHANGES_MAX {
        let node = Node::new();
        node.root.gate.close_after(count, Errno::IO);
        let first = node.install();
        node.root.gate.open();
        let before_second = node.systemd.started.borrow().len();
        node.install().unwrap_or_else(|error| panic!("after {count} changes: {error}"));
        assert!(node.files(true) == expected, "after {count} changes");
        for unit in ["podvisor.service", "kubelet.service"] {
            assert!(node.is_running(unit), "after {count} changes: {unit}");
            assert!(
                node.systemd.started.borrow().iter().any(|started| started == unit),
                "after {count} changes: {unit}"
            );
        }
        if first.is_ok() {
            assert_eq!(node.systemd.started.borrow().len(), before_second);
            break;
        }
        killed += 1;
    }
    assert!((20..CHANGES_MAX).contains(&killed), "{killed}");
}

#[test]
fn an_upgrade_that_is_killed_before_any_change_still_restarts_the_daemon() {
    for count in 0..CHANGES_MAX {
        let node = Node::new();
        node.install().unwrap();
        node.payload("second");
        node.systemd.started.borrow_mut().clear();
        node.root.gate.close_after(count, Errno::IO);
        let first = node.install();
        node.root.gate.open();
        node.install().unwrap();
        assert_eq!(node.text("opt/podvisor/bin/podvisor"), "podvisor second", "after {count} changes");
        assert!(!node.path("opt/podvisor/share/first").exists(), "after {count} changes");
        assert!(
            node.systemd.started.borrow().contains(&"podvisor.service".to_owned()),
            "after {count} changes"
        );
        if first.is_ok() {
            return;
        }
    }
    panic!("an upgrade has no end");
}

#[test]
fn a_removal_that_is_killed_before_any_change_is_completed_by_the_next() {
    let clean = Node::new().files(true);
    for count in 0..CHANGES_MAX {
        let node = Node::new();
        node.install().unwrap();
        node.root.gate.close_after(count, Errno::IO);
        let first = node.remove(false, true);
        node.root.gate.open();
        assert!(node.is_running("kubelet.service"), "after {count} changes");
        node.remove(false, true).unwrap_or_else(|error| panic!("after {count} changes: {error}"));
        let mut now = node.files(true);
        now.remove(Path::new("etc/systemd/system/kubelet.service.d"));
        // Nothing but an empty directory may be left of a lock.
        now.retain(|path, _| !path.starts_with("var/lib/podvisor-node"));
        assert!(now == clean, "after {count} changes: {:?}", now.keys());
        assert!(!node.is_running("podvisor.service"));
        if first.is_ok() {
            return;
        }
    }
    panic!("a removal has no end");
}

#[test]
fn an_installation_that_was_killed_is_removed_whole() {
    let clean = Node::new().files(true);
    for count in 0..CHANGES_MAX {
        let node = Node::new();
        node.root.gate.close_after(count, Errno::IO);
        let ended = node.install().is_ok();
        node.root.gate.open();
        node.remove(false, true).unwrap_or_else(|error| panic!("after {count} changes: {error}"));
        let mut now = node.files(false);
        now.retain(|path, _| !path.starts_with("etc/systemd/system/kubelet.service.d"));
        let left: Vec<_> = now.keys().filter(|path| !clean.contains_key(*path)).collect();
        // Directories made for a first file, never written.
        assert!(
            left.iter().all(|path| node.path(&path.to_string_lossy()).is_dir()),
            "after {count} changes: {left:?}"
        );
        if ended {
            return;
        }
    }
    panic!("an installation has no end");
}

#[test]
fn a_disk_that_gets_full_or_read_only_is_reported_and_leaves_no_part_of_a_file() {
    let expected = installed();
    for errno in [Errno::NOSPC, Errno::ROFS, Errno::IO] {
        for count in (0..60).step_by(3) {
            let node = Node::new();
            node.root.gate.close_after(count, errno);
            if let Err(InstallError::Root(error)) = node.install() {
                assert_eq!(error.kind(), std::io::Error::from(errno).kind());
            }
            no_leftover(&node.files(true));
            node.root.gate.open();
            node.install().unwrap();
            assert!(node.files(true) == expected);
        }
    }
}

#[test]
fn two_installations_at_once_are_one() {
    let node = Node::new();
    let lock = node.root.lock_file(Path::new("/var/lib/podvisor-node/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = node.install().unwrap_err().to_string();
    assert_eq!(said, "another installation or removal is under way on this node");
    drop(lock);
    node.install().unwrap();
}

#[test]
fn a_damaged_record_is_named_and_nothing_is_removed_by_it() {
    let node = Node::new();
    node.install().unwrap();
    fs::write(node.path("var/lib/podvisor-node/record.json"), "{").unwrap();
    for said in [node.install().unwrap_err().to_string(), node.remove(true, true).unwrap_err().to_string()] {
        assert!(said.contains("record.json on the node is no record"), "{said}");
    }
    assert!(node.path("opt/podvisor/bin/podvisor").exists());
}

/// Runs on a file system of its own at the node's `/opt`. Says so and does nothing without the necessary
/// rights.
fn on_a_disk(options: &'static str, flags: nix::mount::MsFlags, test: fn(&Node)) {
    std::thread::spawn(move || {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};
        let nothing: Option<&str> = None;
        let private = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing));
        if private.is_err() {
            eprintln!("skipped: a mount namespace needs root");
            return;
        }
        let mut node = Node::new();
        mount(Some("disk"), &node.path("opt"), Some("tmpfs"), flags, Some(options)).unwrap();
        // A descriptor from before the mount would lead past it.
        let gate = node.root.gate.clone();
        node.root = HostRoot::open(&node.systemd.root).unwrap();
        node.root.gate = gate;
        node.spec.between_looks = Duration::ZERO;
        test(&node);
        nix::mount::umount2(&node.path("opt"), nix::mount::MntFlags::MNT_DETACH).unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn a_full_disk_is_refused_before_anything_is_written() {
    on_a_disk("size=1m", nix::mount::MsFlags::empty(), |node| {
        let error = node.install().unwrap_err();
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.starts_with("/opt/podvisor has 1048576 bytes free, and "), "{said}");
        assert!(!node.path("opt/podvisor").exists() && !node.path("etc/podvisor").exists());
    });
}

#[test]
fn a_read_only_disk_is_refused_and_named() {
    on_a_disk("size=200m", nix::mount::MsFlags::MS_RDONLY, |node| {
        let error = node.install().unwrap_err();
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains("/opt/podvisor/bin/podvisor is on a read-only file system"), "{said}");
    });
}

#[test]
fn a_purge_does_not_empty_what_is_mounted_in_the_state() {
    on_a_disk("size=200m", nix::mount::MsFlags::empty(), |node| {
        node.install().unwrap();
        fs::create_dir_all(node.path("var/lib/podvisor/disk")).unwrap();
        let nothing: Option<&str> = None;
        let place = node.path("var/lib/podvisor/disk");
        nix::mount::mount(Some("disk"), &place, Some("tmpfs"), nix::mount::MsFlags::empty(), nothing)
            .unwrap();
        fs::write(place.join("file"), "x").unwrap();
        let said = node.remove(false, true).unwrap_err().to_string();
        assert!(said.contains("/var/lib/podvisor"), "{said}");
        assert!(place.join("file").exists());
        nix::mount::umount2(&place, nix::mount::MntFlags::MNT_DETACH).unwrap();
        node.remove(false, true).unwrap();
    });
}
