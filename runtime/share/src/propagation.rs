//! Finds out if the host propagates later mounts below a path. `/proc/thread-self/mountinfo` has this for
//! each mount. Nothing here changes a mount.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Returns true if the file's mount receives mounts from others, as shared mounts and slaves do.
pub(crate) fn receives(file: BorrowedFd<'_>) -> io::Result<bool> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let table = fs::read_to_string("/proc/thread-self/mountinfo")?;
    Ok(listed_as_receiver(&table, found.stx_mnt_id))
}

/// Returns true if the table lists the mount as shared or as a slave. A line is "id parent major:minor root
/// point options [optional fields…] - …" (proc_pid_mountinfo(5)).
fn listed_as_receiver(table: &str, id: u64) -> bool {
    let id = id.to_string();
    let line = table.lines().find(|line| line.split(' ').next() == Some(id.as_str()));
    let optional =
        line.into_iter().flat_map(|line| line.split(' ').skip(6).take_while(|field| *field != "-"));
    optional.into_iter().any(|field| field.starts_with("shared:") || field.starts_with("master:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw,relatime - ext4 /dev/sda rw,shared:9
22 21 0:5 / /a rw shared:3 - tmpfs shared:1 rw
23 21 0:6 / /b rw master:3 propagate_from:2 - tmpfs none rw
24 21 0:7 / /c ro unbindable - tmpfs none rw";

    #[test]
    fn shared_mounts_and_slaves_receive_and_others_do_not() {
        for (id, receives) in [(21, false), (22, true), (23, true), (24, false), (2, false)] {
            assert_eq!(listed_as_receiver(TABLE, id), receives, "{id}");
        }
    }
}
