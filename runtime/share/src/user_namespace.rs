//! User namespaces that nobody lives in: `mount_setattr(2)` takes one to say whose files are shown as whose.
//!
//! A process has to be born in one for it to be. Ours is a copy of the daemon that does nothing but wait for
//! its end: the unsafe code here is the system calls of its short life.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::bind::Owners;

/// Makes one with these mappings. Needs privileges.
pub(crate) fn make(owners: &Owners) -> io::Result<OwnedFd> {
    let child = Child::start()?;
    let directory = format!("/proc/{}", child.0.as_raw_nonzero());
    for (file, ids) in [("uid_map", &owners.uids), ("gid_map", &owners.gids)] {
        fs::write(format!("{directory}/{file}"), format!("0 {} {}", ids.shown_as, ids.length))?;
    }
    Ok(File::open(format!("{directory}/ns/user"))?.into())
}

/// A process in a new user namespace; gone when dropped.
struct Child(Pid);

impl Child {
    fn start() -> io::Result<Child> {
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        // SAFETY: without CLONE_VM the child has its own copy of the memory, and no stack is named. Other
        // threads may have held locks when it was made, so it makes system calls alone, with numbers alone,
        // and takes and allocates nothing.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid == 0 {
            loop {
                // SAFETY: see above. It goes with the thread that made it, should that not end it.
                unsafe {
                    libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                    libc::syscall(libc::SYS_pause);
                }
            }
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.map(Child).ok_or_else(|| io::Error::other("a process without an id"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It is there until it is waited for, and nobody else does.
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}
