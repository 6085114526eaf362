//! Sets the scheduling policy SCHED_BATCH (sched(7)): a waking thread does not preempt the running one. When
//! processors are short, a thread that only passes bytes on then finds more of them at each run, and it keeps
//! its share of processor time. Under the ordinary policy it preempts the other end of its stream, and each
//! finds little.
//!
//! The crate exists for the boundary around its one unsafe call. Both the VMM's devices and the daemon pass
//! streams on, but the daemon forbids unsafe code and must not link the devices.

use std::io;

/// Sets SCHED_BATCH for the calling thread and all threads it starts from now on.
///
/// # Errors
/// The kernel's error. No privilege is needed (sched(7)), but a seccomp filter may refuse the call.
pub fn set_sched_batch() -> io::Result<()> {
    set(libc::SCHED_BATCH)
}

/// Sets SCHED_OTHER, the ordinary policy, for the calling thread and all threads it starts from now on.
///
/// # Errors
/// As [`set_sched_batch`].
pub fn set_sched_other() -> io::Result<()> {
    set(libc::SCHED_OTHER)
}

fn set(policy: i32) -> io::Result<()> {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, and they live until the call returns; zero is the calling
    // thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const no_priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_alone_gets_the_policy() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Field 41. Two fields come before the name's end (proc_pid_stat(5)).
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().parse::<i32>().unwrap()
        };
        let there = std::thread::spawn(move || {
            set_sched_batch().unwrap();
            let batch = policy();
            set_sched_other().unwrap();
            (batch, policy())
        });
        assert_eq!(there.join().unwrap(), (libc::SCHED_BATCH, libc::SCHED_OTHER));
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
