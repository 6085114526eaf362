//! Users of single threads. The C library changes the user of all threads of a process at once. These
//! functions change the calling thread alone, and so the process while it has no other.

use std::io;

/// Makes the calling thread and all threads started by it an unprivileged user. The kernel takes all
/// capabilities from a thread when it leaves root.
pub fn leave_root(user: u32, group: u32) -> io::Result<()> {
    leave_groups()?;
    // SAFETY: a system call with numbers alone; it touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) })
}

/// Lets the calling thread keep its capabilities while it is another user for a moment. New files belong to
/// this user. The guest's kernel decides if the user may make them, because it knows the user's other
/// groups too. Needs CAP_SETPCAP. It cannot be taken back.
pub fn keep_capabilities_as_other_users() -> io::Result<()> {
    leave_groups()?;
    let bits = libc::SECBIT_NO_SETUID_FIXUP | libc::SECBIT_NO_SETUID_FIXUP_LOCKED;
    // SAFETY: as above.
    check(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0) }.into())
}

fn leave_groups() -> io::Result<()> {
    set_groups(&[])
}

/// Gives the calling thread these supplementary groups, and no others. Needs CAP_SETGID.
pub(super) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many groups as there are.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
