//! User namespaces without processes: `mount_setattr(2)` takes one as a mapping of owners.
//!
//! Only a new process creates a user namespace. The process here is a copy of the daemon, doing nothing until
//! it is killed. The unsafe code is its few system calls.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::bind::Owners;

/// Creates a user namespace with these mappings. This needs privileges.
pub(crate) fn make(owners: &Owners) -> io::Result<OwnedFd> {
    let child = Child::start()?;
    let directory = format!("/proc/{}", child.0.as_raw_nonzero());
    for (file, ids) in [("uid_map", &owners.uids), ("gid_map", &owners.gids)] {
        fs::write(format!("{directory}/{file}"), format!("0 {} {}", ids.shown_as, ids.length))?;
    }
    Ok(File::open(format!("{directory}/ns/user"))?.into())
}

/// A process in a new user namespace. Dropping it kills and reaps the process.
struct Child(Pid);

impl Child {
    fn start() -> io::Result<Child> {
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        // SAFETY: without CLONE_VM the child has its own copy of the memory, and no stack is named. Other
        // threads may have held locks at the time of the clone. So the child makes only system calls, with
        // only numbers, and takes and allocates nothing.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid == 0 {
            loop {
                // SAFETY: as above. The signal ends the child with its creating thread, if nothing else does.
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
        // The process stays until it is waited for, and nothing else waits for it.
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}
