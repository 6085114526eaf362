//! Binds a VM to CPUs of the host: the affinity of all threads of its VMM and share. Other pods may have all
//! other CPUs for themselves. The daemon sets it, because the seccomp filters do not let the processes do so.

use std::collections::HashSet;
use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::VmError;
use crate::process::has_ended;
use crate::share_process::shares_of;

/// Most looks at the threads of a process. A thread started by one that is not bound yet is found at the next
/// look; only a process under attack starts some without end.
const LOOKS_MAX: u32 = 8;

pub(crate) fn pin(pid: u32, cpus: &[u32]) -> Result<(), VmError> {
    let failed = |pid| move |source| VmError::Pin { pid, cpus: cpus.to_vec(), source };
    let set = set(cpus).map_err(failed(pid))?;
    bind(pid, &set).map_err(failed(pid))?;
    // After the VMM: a share that it starts from here on is bound already.
    for share in shares_of(pid) {
        match bind(share, &set) {
            Err(error) if has_ended(&error) => {}
            bound => bound.map_err(failed(share))?,
        }
    }
    Ok(())
}

/// Binds all threads of a process. Threads that they start later inherit it.
fn bind(pid: u32, set: &CpuSet) -> io::Result<()> {
    let mut bound = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let before = bound.len();
        for thread in threads(pid)? {
            if bound.insert(thread) {
                match sched_setaffinity(thread, set) {
                    Err(Errno::ESRCH) => {}
                    other => other?,
                }
            }
        }
        if bound.len() == before {
            break;
        }
    }
    Ok(())
}

fn set(cpus: &[u32]) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    let numbers = cpus.iter().map(|&cpu| cpu as usize);
    // The kernel ignores missing CPUs as long as one exists.
    let all = (0..CpuSet::count()).take(if cpus.is_empty() { usize::MAX } else { 0 });
    for cpu in numbers.chain(all) {
        set.set(cpu)?;
    }
    Ok(set)
}

fn threads(pid: u32) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(number.map(Pid::from_raw));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(process: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    }

    #[test]
    fn threads_of_a_vmm_are_bound_and_released() {
        let before = allowed("thread-self");
        let first = first_of(&before);
        let (step, steps) = std::sync::mpsc::channel();
        let (ready, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            ready.send(()).unwrap();
            while steps.recv().is_ok() {
                seen.push(allowed("thread-self"));
                ready.send(()).unwrap();
            }
            seen
        });
        wait.recv().unwrap();
        for cpus in [&[first][..], &[]] {
            pin(std::process::id(), cpus).unwrap();
            step.send(()).unwrap();
            wait.recv().unwrap();
        }
        assert!(pin(std::process::id(), &[8191]).is_err());
        drop(step);
        assert_eq!(thread.join().unwrap(), [first.to_string(), before.clone()]);
        assert_eq!(allowed("thread-self"), before);
    }

    #[test]
    fn a_share_is_bound_with_its_vmm() {
        let before = allowed("thread-self");
        let mut vmm = std::process::Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let share = loop {
            if let [share] = shares_of(vmm.id())[..] {
                break share;
            }
            std::thread::yield_now();
        };
        for (cpus, expected) in [(&[first_of(&before)][..], first_of(&before).to_string()), (&[], before)] {
            pin(vmm.id(), cpus).unwrap();
            assert_eq!([vmm.id(), share].map(|pid| allowed(&pid.to_string())), [expected.clone(), expected]);
        }
        vmm.kill().unwrap();
        vmm.wait().unwrap();
        nix::sys::signal::kill(Pid::from_raw(share.cast_signed()), nix::sys::signal::SIGKILL).unwrap();
        assert!(pin(vmm.id(), &[]).is_err());
    }

    fn first_of(list: &str) -> u32 {
        list.split([',', '-']).next().unwrap().parse().unwrap()
    }
}
