//! Extended attributes, access control lists and umasks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use fuse_backend_rs::abi::fuse_abi::{FsOptions, Opcode};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::{Guest, ROOT, le32};
use crate::virtio::VirtioDevice as _;

/// Entries of an access control list (linux/posix_acl_xattr.h): tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

const NOBODY: u32 = u32::MAX;
/// The owner reads and writes, user 1234 and the group read and write, the mask allows both, others nothing.
const SHARED_WITH_ONE: [(u16, u16, u32); 5] =
    [(1, 6, NOBODY), (2, 6, 1234), (4, 6, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];

impl Guest {
    fn set(&mut self, node: u64, name: &str, value: &[u8], flags: u32) -> Result<Vec<u8>, i32> {
        let mut body = [(value.len() as u32).to_le_bytes(), flags.to_le_bytes()].concat();
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(value);
        self.ask(Opcode::Setxattr, node, &body)
    }

    fn get(&mut self, node: u64, name: &str, size: u32) -> Result<Vec<u8>, i32> {
        let body = [&size.to_le_bytes()[..], &[0; 4], name.as_bytes(), b"\0"].concat();
        self.ask(Opcode::Getxattr, node, &body)
    }

    fn list(&mut self, node: u64, size: u32) -> Result<Vec<u8>, i32> {
        self.ask(Opcode::Listxattr, node, &[size.to_le_bytes(), [0; 4]].concat())
    }

    fn remove_attribute(&mut self, node: u64, name: &str) -> Result<Vec<u8>, i32> {
        self.ask(Opcode::Removexattr, node, format!("{name}\0").as_bytes())
    }

    fn create(&mut self, name: &str, mode: u32, umask: u32) -> Result<Vec<u8>, i32> {
        let words = [(libc::O_CREAT | libc::O_RDWR) as u32, libc::S_IFREG | mode, umask, 0];
        let body = [&words.map(u32::to_le_bytes).concat(), name.as_bytes(), b"\0"].concat();
        self.ask(Opcode::Create, ROOT, &body)
    }

    pub(super) fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.dir.path().join(name)).unwrap().permissions().mode() & 0o7777
    }
}

#[test]
fn attributes_of_users_are_the_host_files_own() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    let node = guest.node("file");
    guest.set(node, "user.from-guest", b"one", 0).unwrap();
    let mut value = [0u8; 8];
    assert_eq!(getxattr(&path, "user.from-guest", &mut value[..]), Ok(3));
    assert_eq!(&value[..3], b"one");
    setxattr(&path, "user.from-host", b"two", XattrFlags::empty()).unwrap();
    assert_eq!(guest.get(node, "user.from-host", 8).unwrap(), b"two");
    // The sizes. A program asks for them first.
    assert_eq!(le32(&guest.get(node, "user.from-host", 0).unwrap(), 0), 3);
    assert_eq!(guest.get(node, "user.from-host", 2).unwrap_err(), libc::ERANGE);
    let names = guest.list(node, 100).unwrap();
    let mut sorted: Vec<_> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    sorted.sort();
    assert_eq!(sorted, [&b"user.from-guest"[..], b"user.from-host"]);
    assert_eq!(le32(&guest.list(node, 0).unwrap(), 0) as usize, names.len());
    assert_eq!(guest.list(node, 3).unwrap_err(), libc::ERANGE);
    guest.remove_attribute(node, "user.from-host").unwrap();
    assert_eq!(guest.get(node, "user.from-host", 8).unwrap_err(), libc::ENODATA);
    assert_eq!(guest.remove_attribute(node, "user.from-host").unwrap_err(), libc::ENODATA);
    guest.set(ROOT, "user.of-a-directory", b"", 0).unwrap();
    assert_eq!(guest.list(ROOT, 100).unwrap(), b"user.of-a-directory\0");
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn an_attribute_is_made_or_replaced_as_asked() {
    let (create, replace) = (libc::XATTR_CREATE as u32, libc::XATTR_REPLACE as u32);
    let mut guest = Guest::new();
    let node = guest.node("file");
    assert_eq!(guest.set(node, "user.one", b"1", replace).unwrap_err(), libc::ENODATA);
    guest.set(node, "user.one", b"1", create).unwrap();
    assert_eq!(guest.set(node, "user.one", b"2", create).unwrap_err(), libc::EEXIST);
    assert_eq!(guest.set(node, "user.one", b"2", 1 << 20).unwrap_err(), libc::EINVAL);
    guest.set(node, "user.one", b"2", replace).unwrap();
    assert_eq!(guest.get(node, "user.one", 10).unwrap(), b"2");
}

#[test]
fn labels_and_capabilities_do_not_come_from_a_guest_and_do_not_go_there() {
    let mut guest = Guest::new();
    let node = guest.node("file");
    let names =
        ["security.capability", "security.selinux", "trusted.overlay.opaque", "system.nfs4_acl", "other"];
    for name in names {
        assert_eq!(guest.set(node, name, b"x", 0).unwrap_err(), libc::EOPNOTSUPP, "{name}");
        assert_eq!(guest.get(node, name, 100).unwrap_err(), libc::EOPNOTSUPP, "{name}");
        assert_eq!(guest.remove_attribute(node, name).unwrap_err(), libc::EOPNOTSUPP, "{name}");
    }
    // Where the test may set one, the host's is not listed either.
    let path = guest.dir.path().join("file");
    let _ = setxattr(&path, "security.podvisor-test", b"x", XattrFlags::empty());
    assert_eq!(guest.list(node, 100).unwrap(), b"");
}

#[test]
fn values_have_a_bound_and_a_reader_that_asks_for_too_much_costs_no_memory() {
    let mut guest = Guest::new();
    let node = guest.node("file");
    assert_eq!(guest.set(node, "user.large", &vec![1; (64 << 10) + 1], 0).unwrap_err(), libc::E2BIG);
    guest.set(node, "user.small", b"small", 0).unwrap();
    assert_eq!(guest.get(node, "user.small", u32::MAX).unwrap(), b"small");
    assert_eq!(guest.list(node, u32::MAX).unwrap(), b"user.small\0");
    assert!(guest.set(node, &format!("user.{}", "x".repeat(300)), b"", 0).is_err());
}

#[test]
fn what_is_neither_file_nor_directory_has_no_attributes_and_no_list() {
    let mut guest = Guest::new();
    let _listener = UnixListener::bind(guest.dir.path().join("socket")).unwrap();
    let node = guest.node("socket");
    assert_eq!(guest.set(node, "user.one", b"x", 0).unwrap_err(), libc::EOPNOTSUPP);
    // A guest's kernel asks for it before anyone but the owner may open the socket.
    assert_eq!(guest.get(node, "system.posix_acl_access", 100).unwrap_err(), libc::ENODATA);
    assert_eq!(le32(&guest.list(node, 0).unwrap(), 0), 0);
    assert_eq!(guest.get(0xdead, "user.one", 100).unwrap_err(), libc::EBADF);
}

#[test]
fn an_access_control_list_is_the_host_files_and_its_mode_goes_with_it() {
    let mut guest = Guest::new();
    let node = guest.node("file");
    let name = "system.posix_acl_access";
    assert_eq!(guest.get(node, name, 100).unwrap_err(), libc::ENODATA);
    match guest.set(node, name, &acl(&SHARED_WITH_ONE), 0) {
        Err(libc::EOPNOTSUPP) => {
            return eprintln!("passed over: this file system has no access control lists");
        }
        other => other.unwrap(),
    };
    assert_eq!(guest.mode("file"), 0o660);
    assert_eq!(guest.get(node, name, 100).unwrap(), acl(&SHARED_WITH_ONE));
    assert_eq!(guest.list(node, 100).unwrap(), b"system.posix_acl_access\0");
    guest.remove_attribute(node, name).unwrap();
    assert_eq!(guest.get(node, name, 100).unwrap_err(), libc::ENODATA);
}

#[test]
fn a_default_list_takes_the_place_of_the_umask_and_of_nothing_else() {
    let mut guest = Guest::new();
    assert!(guest.mount_options().contains(FsOptions::DONT_MASK | FsOptions::POSIX_ACL));
    guest.create("masked", 0o666, 0o27).unwrap();
    assert_eq!(guest.mode("masked"), 0o640);
    let mkdir = |mode: u32, umask: u32| [mode.to_le_bytes(), umask.to_le_bytes()].concat();
    guest.ask(Opcode::Mkdir, ROOT, &[&mkdir(0o777, 0o77)[..], b"dir\0"].concat()).unwrap();
    assert_eq!(guest.mode("dir"), 0o700);
    match guest.set(ROOT, "system.posix_acl_default", &acl(&SHARED_WITH_ONE), 0) {
        Err(libc::EOPNOTSUPP) => {
            return eprintln!("passed over: this file system has no access control lists");
        }
        other => other.unwrap(),
    };
    guest.create("listed", 0o666, 0o27).unwrap();
    assert_eq!(guest.mode("listed"), 0o660);
    let node = guest.node("listed");
    assert_eq!(guest.get(node, "system.posix_acl_access", 100).unwrap(), acl(&SHARED_WITH_ONE));
}

#[test]
fn a_list_set_by_a_stranger_to_the_group_takes_the_group_id_bit() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2770)).unwrap();
    let node = guest.node("file");
    // Set by root: it may keep the bit. The host decides if the test's own user may.
    match guest.set(node, "system.posix_acl_access", &acl(&SHARED_WITH_ONE), 0) {
        Err(libc::EOPNOTSUPP) => {
            return eprintln!("passed over: this file system has no access control lists");
        }
        other => other.unwrap(),
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2770)).unwrap();
    guest.caller = (4321, 4321);
    guest.set(node, "system.posix_acl_access", &acl(&SHARED_WITH_ONE), 0).unwrap();
    assert_eq!(guest.mode("file"), 0o660);
}
