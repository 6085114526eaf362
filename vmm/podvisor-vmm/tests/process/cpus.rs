//! CPUs of the processes.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::*;

/// Binds this thread to these CPUs, and returns the CPUs that it has then.
fn bind(cpus: impl Iterator<Item = usize>) -> String {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu).unwrap();
    }
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
    allowed("thread-self")
}

fn allowed(process: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn a_vmm_and_its_share_have_all_cpus_of_the_cgroup_even_if_the_daemon_is_bound_to_some() {
    let all = bind(0..CpuSet::count());
    let first = all.split([',', '-']).next().unwrap();
    if all == first {
        eprintln!("skipped: needs two processors");
        return;
    }
    assert_eq!(bind(std::iter::once(first.parse().unwrap())), first);
    let Some(mut vmm) = Vmm::start() else { return };
    assert_eq!(allowed(&vmm.child.0.id().to_string()), all);
    assert_eq!(allowed(&share::Share::of(&vmm).0.to_string()), all);
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}
