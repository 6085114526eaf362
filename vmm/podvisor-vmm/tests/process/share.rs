//! The share's process beside the VMM's.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A process other than the test's own child. No test leaves it behind.
pub(super) struct Share(pub(super) Pid);

impl Share {
    pub(super) fn of(vmm: &Vmm) -> Share {
        let pid = vmm.child.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let children: Vec<i32> = children.split_whitespace().map(|one| one.parse().unwrap()).collect();
        assert_eq!(children.len(), 1, "children of the VMM: {children:?}");
        Share(Pid::from_raw(children[0]))
    }

    fn proc(&self) -> std::path::PathBuf {
        Path::new("/proc").join(self.0.to_string())
    }

    /// Waits until the process is gone or a zombie.
    fn wait_for_end(&self) {
        for _ in 0..TRIES_MAX {
            match std::fs::read_to_string(self.proc().join("stat")) {
                Ok(stat) if !stat.rsplit_once(") ").unwrap().1.starts_with('Z') => {}
                _ => return,
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the share {} goes on", self.0);
    }
}

fn lines(proc: &Path) -> Vec<String> {
    let tasks = std::fs::read_dir(proc.join("task")).unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).collect()
}

#[test]
fn the_share_has_the_volumes_and_the_vmm_nothing_of_them() {
    let Some(mut vmm) = Vmm::start() else { return };
    let share = Share::of(&vmm);
    vmm.boot(&LOOP).unwrap();
    let shared = vmm.path.with_file_name("shared");
    std::fs::write(shared.join("volume"), "").unwrap();
    let names = |root: &Path| {
        let entries = std::fs::read_dir(root).unwrap().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(&share.proc().join("root")), ["volume"]);
    let vmm_proc = Path::new("/proc").join(vmm.child.0.id().to_string());
    assert!(names(&vmm_proc.join("root")).is_empty());
    for status in lines(&vmm_proc) {
        let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert!(
            uid.split_whitespace().skip(1).all(|uid| uid.parse::<u32>().unwrap() >= 0x7000_0000),
            "{uid}"
        );
        for set in ["CapEff", "CapPrm", "CapInh"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
    }
    for status in lines(&share.proc()) {
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
        // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID: needed for serving files.
        for set in ["CapEff", "CapPrm"] {
            assert!(status.contains(&format!("{set}:\t00000000000000df")), "{status}");
        }
        assert!(status.contains("CapInh:\t0000000000000000"), "{status}");
    }
    // Sockets to the VMM, the library's two directories and an event, and no file with a reader to write
    // to.
    for entry in std::fs::read_dir(share.proc().join("fd")).unwrap().flatten() {
        let Ok(file) = std::fs::read_link(entry.path()) else { continue };
        let file = file.to_string_lossy().into_owned();
        let known = ["socket:[", "anon_inode:[eventfd]", "/dev/null", "/proc/", "/"];
        assert!(known.iter().any(|known| file.starts_with(known)) && !file.contains("kvm"), "{file}");
        assert!(!file.ends_with(".sock") && !file.contains("memfd"), "{file}");
    }
    for namespace in ["net", "ipc", "mnt", "pid"] {
        let of = |proc: &Path| std::fs::read_link(proc.join("ns").join(namespace)).unwrap();
        assert_ne!(of(&share.proc()), of(Path::new("/proc/self")), "{namespace}");
        assert_eq!(of(&share.proc()) == of(&vmm_proc), ["net", "ipc"].contains(&namespace), "{namespace}");
    }
    let status = std::fs::read_to_string(share.proc().join("status")).unwrap();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    assert_eq!(numbers.split_whitespace().last(), Some("1"), "the share is not its namespace's first");
    let program = |proc: &Path| {
        let maps = std::fs::read_to_string(proc.join("maps")).unwrap();
        maps.lines().next().unwrap().split('-').next().unwrap().to_owned()
    };
    assert_ne!(program(&share.proc()), program(&vmm_proc), "both have their code at one place");
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
    share.wait_for_end();
}

#[test]
fn a_share_that_dies_ends_the_vm_with_a_reason_that_says_so() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    let share = Share::of(&vmm);
    kill(share.0, Signal::SIGKILL).unwrap();
    let (report, status) = vmm.end();
    let message = "the share of the pod's volumes was lost: its process has ended".to_owned();
    assert_eq!(report.reason, StopReason::Vmm { message });
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_share_ends_with_its_vmm_however_that_ends() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    let share = Share::of(&vmm);
    vmm.child.0.kill().unwrap();
    vmm.child.0.wait().unwrap();
    share.wait_for_end();

    let Some(vmm) = Vmm::start() else { return };
    let share = Share::of(&vmm);
    let Vmm { client, mut child, .. } = vmm;
    drop(client);
    child.0.wait().unwrap();
    share.wait_for_end();
}
