//! Files for the VMM to read and write itself. Each is opened anew for this: the library keeps its own
//! description, and the VMM's belongs to nobody else.

use std::fs::File;

use fuse_backend_rs::abi::fuse_abi::{InHeader, OutHeader};
use fuse_backend_rs::api::filesystem::Context;
use rustix::fs::{FileType, OFlags, Stat, fcntl_setfl, fstat, fstatfs, major};

use super::Share;
use crate::virtio::fs::message::{Opening, object, opening};

/// Flags of a description that can be set after it was opened (fcntl(2), F_SETFL).
/// Each write says for itself if it goes to the end of the file.
const LATER: OFlags = OFlags::DIRECT.union(OFlags::NONBLOCK).union(OFlags::NOATIME);

/// File systems with a look at the caller of each read and write, and not only of the open (linux/magic.h).
/// They are those of the kernel's own values and settings, and those served by programs, which see the
/// caller.
const ASK_EACH_TIME: [u32; 18] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0x4249_4e4d, // binfmt_misc
    0x0765_5821, // resctrl
    0x6573_5543, // fusectl
    0x6573_5546, // fuse
];

impl Share {
    /// Returns the file opened by a request, from its answer. `None` if the VMM must not have it: a
    /// directory, a description without content, or a file that cannot be had in this way. Then the share
    /// reads and writes.
    pub(in crate::virtio::fs) fn lend(&self, request: &[u8], answer: &[u8]) -> Option<File> {
        let header: InHeader = object(request, 0)?;
        let answered: OutHeader = object(answer, 0)?;
        let Opening { inode, flags, .. } = opening(request, answer)?;
        let flags = OFlags::from_bits_retain(flags);
        let writable = match flags & OFlags::ACCMODE {
            OFlags::RDONLY => false,
            OFlags::WRONLY | OFlags::RDWR => true,
            _ => return None,
        };
        if answered.error != 0 || flags.contains(OFlags::PATH) {
            return None;
        }
        let context = Context { uid: header.uid, gid: header.gid, pid: header.pid.cast_signed() };
        let file = self.reopen(&context, inode, writable).ok()?;
        let found = fstat(&file).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || asks_each_time(&file, &found) {
            return None;
        }
        if flags.intersects(LATER) {
            fcntl_setfl(&file, flags & LATER).ok()?;
        }
        Some(file)
    }
}

/// Returns true if the file's system is among [`ASK_EACH_TIME`]. None of these has a block device.
fn asks_each_time(file: &File, found: &Stat) -> bool {
    let kind = || fstatfs(file).map_or(0, |found| found.f_type as u32);
    major(found.st_dev) == 0 && ASK_EACH_TIME.contains(&kind())
}
