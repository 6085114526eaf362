//! Binds a VM's vCPUs to CPUs of the host: the affinity of the VMM's vCPU threads. The daemon sets it,
//! because the VMM's own seccomp filter does not let it do so.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::VmError;
use crate::process::has_ended;

/// The name of the VMM's vCPU threads, without their number.
const THREAD: &str = "vcpu";

pub(crate) fn pin(pid: u32, cpus: &[u32]) -> Result<(), VmError> {
    let failed = |source| VmError::Pin { pid, cpus: cpus.to_vec(), source };
    let set = set(cpus).map_err(failed)?;
    for thread in threads(pid).map_err(failed)? {
        match sched_setaffinity(thread, &set) {
            Err(Errno::ESRCH) => {}
            other => other.map_err(|errno| failed(errno.into()))?,
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
        let entry = entry?;
        let name = match fs::read_to_string(entry.path().join("comm")) {
            Ok(name) => name,
            Err(error) if has_ended(&error) => continue,
            Err(error) => return Err(error),
        };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(number)) = (name.starts_with(THREAD), number) {
            found.push(Pid::from_raw(number));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    }

    #[test]
    fn threads_named_for_vcpus_are_bound_and_released_and_others_are_left_alone() {
        let before = allowed();
        let first = before.split([',', '-']).next().unwrap().parse::<u32>().unwrap();
        let (step, steps) = std::sync::mpsc::channel();
        let (ready, wait) = std::sync::mpsc::channel();
        let vcpu = std::thread::Builder::new().name("vcpu0".into()).spawn(move || {
            let mut seen = Vec::new();
            ready.send(()).unwrap();
            while steps.recv().is_ok() {
                seen.push(allowed());
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
        assert_eq!(vcpu.unwrap().join().unwrap(), [first.to_string(), before.clone()]);
        assert_eq!(allowed(), before);
    }
}
