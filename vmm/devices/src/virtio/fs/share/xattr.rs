//! Extended attributes (xattr(7)). Those of users and POSIX access control lists (acl(5)) are the host
//! file's own. All others do not exist for a guest. `security.*` are labels and file capabilities, and the
//! host's kernel acts on them. `trusted.*` is the word of the host's root. A guest may neither set nor read
//! these two.
//!
//! The guest's kernel has checked the caller. EOPNOTSUPP is the answer of a file system without a kind of
//! attribute: programs copying files go on without it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use fuse_backend_rs::api::filesystem::{Context, FileSystem as _, GetxattrReply, ListxattrReply};
use rustix::fs::{XattrFlags, fgetxattr, fgetxattr_query, flistxattr, fremovexattr, fsetxattr};

use super::Share;

/// Bytes of a value, and of a list of names (linux/limits.h: XATTR_SIZE_MAX, XATTR_LIST_MAX).
const VALUE_BYTES_MAX: usize = 64 << 10;
const LIST_BYTES_MAX: usize = 64 << 10;

const USER: &[u8] = b"user.";
/// The access control list of a file.
const ACCESS: &[u8] = b"system.posix_acl_access";
/// The first list of new files in a directory.
const DEFAULT: &[u8] = b"system.posix_acl_default";

impl Share {
    pub(super) fn set_attribute(
        &self,
        ctx: &Context,
        inode: u64,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        check(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let flags = XattrFlags::from_bits(flags).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let file = self.attributed(ctx, inode)?;
        fsetxattr(&file, name, value, flags)?;
        if name.to_bytes() == ACCESS { drop_foreign_setgid(ctx, &file) } else { Ok(()) }
    }

    pub(super) fn get_attribute(
        &self,
        ctx: &Context,
        inode: u64,
        name: &CStr,
        size: u32,
    ) -> io::Result<GetxattrReply> {
        check(name)?;
        let read = self.attributed(ctx, inode).and_then(|file| {
            if size == 0 {
                let length = fgetxattr_query(&file, name)?;
                return Ok(GetxattrReply::Count(u32::try_from(length).unwrap_or(u32::MAX)));
            }
            let mut value = vec![0u8; VALUE_BYTES_MAX.min(size as usize)];
            let length = fgetxattr(&file, name, &mut value[..])?;
            value.truncate(length);
            Ok(GetxattrReply::Value(value))
        });
        read.map_err(|error| match error.raw_os_error() {
            // A kernel checking an open takes this error as "no list", and any other error as its answer.
            Some(libc::EOPNOTSUPP) if is_list(name) => io::Error::from_raw_os_error(libc::ENODATA),
            _ => error,
        })
    }

    pub(super) fn list_attributes(&self, ctx: &Context, inode: u64, size: u32) -> io::Result<ListxattrReply> {
        let file = match self.attributed(ctx, inode) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
            other => Some(other?),
        };
        let names = file.map(|file| names(&file)).transpose()?.unwrap_or_default();
        if size == 0 {
            return Ok(ListxattrReply::Count(u32::try_from(names.len()).unwrap_or(u32::MAX)));
        }
        if names.len() > size as usize {
            return Err(io::Error::from_raw_os_error(libc::ERANGE));
        }
        Ok(ListxattrReply::Names(names))
    }

    pub(super) fn remove_attribute(&self, ctx: &Context, inode: u64, name: &CStr) -> io::Result<()> {
        check(name)?;
        let file = self.attributed(ctx, inode)?;
        Ok(fremovexattr(&file, name)?)
    }

    /// Returns the file or directory, or EOPNOTSUPP for anything else with this number. Links, pipes and
    /// sockets have no attributes of users, and are not opened on the host.
    fn attributed(&self, ctx: &Context, inode: u64) -> io::Result<File> {
        self.reopen(ctx, inode, false).map_err(|error| {
            let known = self.files.getattr(ctx, inode, None).is_ok();
            match error.raw_os_error() {
                Some(libc::EBADF) if known => io::Error::from_raw_os_error(libc::EOPNOTSUPP),
                _ => error,
            }
        })
    }
}

/// The attributes of a file that a guest may ask for, each with a NUL.
fn names(file: &File) -> io::Result<Vec<u8>> {
    let mut all = vec![0u8; LIST_BYTES_MAX];
    let length = flistxattr(file, &mut all[..])?;
    all.truncate(length);
    let mut kept = Vec::with_capacity(length);
    for name in all.split_inclusive(|byte| *byte == 0) {
        if is_guests(name.strip_suffix(b"\0").unwrap_or(name)) {
            kept.extend_from_slice(name);
        }
    }
    Ok(kept)
}

/// Refuses attributes not meant for guests.
fn check(name: &CStr) -> io::Result<()> {
    if is_guests(name.to_bytes()) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
}

fn is_guests(name: &[u8]) -> bool {
    name.starts_with(USER) || [ACCESS, DEFAULT].contains(&name)
}

fn is_list(name: &CStr) -> bool {
    [ACCESS, DEFAULT].contains(&name.to_bytes())
}

/// Takes the set-group-id bit from a file with a group other than the caller's. Linux does it when a list
/// is set (posix_acl_update_mode), but the share's capability would keep the bit. The caller's further
/// groups are not known here: a member of the group by one of these loses the bit, too.
fn drop_foreign_setgid(ctx: &Context, file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    if ctx.uid == 0 || ctx.gid == found.gid() || found.mode() & libc::S_ISGID == 0 {
        return Ok(());
    }
    let mode = found.mode() & !libc::S_IFMT & !libc::S_ISGID;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}
