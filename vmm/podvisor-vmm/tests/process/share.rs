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

/// `mov dword [at], value`, for an address below 2 GiB.
fn store(at: u32, value: u32) -> Vec<u8> {
    [&[0xc7, 0x04, 0x25][..], &at.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// A driver of the share's device that only begins: it waits for the device in its slot, and sets up both
/// queues.
fn driver() -> Vec<u8> {
    /// Registers of the slot (vmm/vm/src/layout.rs), in a large page that is not mapped at the start.
    const REGISTERS: u32 = 0xd000_0000 + 5 * 0x1000;
    // The page tables at the start are for the first GiB: another directory for the fourth.
    let mut code = [store(0xa018, 0xc003), store(0xc000 + 128 * 8, 0xd000_0083)].concat();
    // mov ebx, REGISTERS
    code.extend([&[0xbb][..], &REGISTERS.to_le_bytes()].concat());
    // mov eax, [rbx + 8] (DeviceID); cmp eax, 26; jne back
    code.extend([0x8b, 0x83, 8, 0, 0, 0, 0x83, 0xf8, 26, 0x75, 0xf5]);
    let queue = |index: u32| {
        let at = 0x20_0000 + (index << 16);
        [(0x30, index), (0x38, 64), (0x80, at), (0x90, at + 0x4000), (0xa0, at + 0x8000), (0x44, 1)]
    };
    // The status goes up with the feature VERSION_1 and both queues (virtio 1.2, section 3.1.1).
    let begin = [(0x70, 1), (0x70, 3), (0x24, 1), (0x20, 1), (0x70, 11)];
    let writes = [&begin[..], &queue(0), &queue(1), &[(0x70, 15)]].concat();
    // mov dword [rbx + register], value
    code.extend(writes.iter().flat_map(|(register, value): &(u32, u32)| {
        [&[0xc7, 0x83][..], &register.to_le_bytes(), &value.to_le_bytes()].concat()
    }));
    [code, print("up"), LOOP.to_vec()].concat()
}

#[test]
fn a_driver_begins_and_both_filters_let_its_channel_be() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&driver()).unwrap();
    let share = Share::of(&vmm);
    let fs = Request::Plug { slot: Slot::FS, device: Device::Fs { tag: "podvisor".into() } };
    vmm.ask(fs, &[]).unwrap();
    while !matches!(vmm.ask(Request::Console, &[]), Ok(Response::Console { text }) if text == "up") {}
    let serving = || {
        let tasks = std::fs::read_dir(share.proc().join("task")).unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name == "share\n").count()
    };
    let mut tries = 0;
    while serving() == 0 {
        tries += 1;
        assert!(tries < TRIES_MAX, "no thread of the share serves\n{}", vmm.log());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
    share.wait_for_end();
}
