//! Threads that are in no hurry: what wakes one does not take the processor from whoever has it (`SCHED_BATCH`, sched(7)).
//! A thread that only passes bytes on finds more of them so each time it runs, where processors are short. Its share
//! of them stays the same.
//!
//! For whoever passes streams on, in the VMM and in the daemon: one such thread that is urgent takes the
//! processor from the other end, and each finds little.

use std::io;

/// Makes the calling thread one, and those that it starts.
///
/// # Errors
/// The kernel's. It needs no privilege (sched(7)); a seccomp filter may refuse it.
pub fn be_batch() -> io::Result<()> {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live until it returns; zero is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const no_priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_alone_becomes_one() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Field 41, of which two are before the name's end (proc_pid_stat(5)).
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().parse::<i32>().unwrap()
        };
        let there = std::thread::spawn(move || {
            be_batch().unwrap();
            policy()
        });
        assert_eq!((there.join().unwrap(), policy()), (libc::SCHED_BATCH, libc::SCHED_OTHER));
    }
}
