//! The real process, jail and filters included, with guests of a few instructions as kernels. Needs
//! root and /dev/kvm; without them these tests say so and pass.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use proto_vmm::{
    BootConfig, CONSOLE_FILE_BYTES_MAX, Device, DeviceKind, Event, FdIndex, FilledSlot, Message,
    PROTOCOL_VERSION, Refusal, Request, Response, Slot, StopReason, StopReport, console_of,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

#[path = "process/cpus.rs"]
mod cpus;
#[path = "process/elf.rs"]
mod elf;
#[path = "process/share.rs"]
mod share;
#[path = "process/template.rs"]
mod template;

/// `mov al, 0xfe; out 0x64, al`
const RESET: [u8; 4] = [0xb0, 0xfe, 0xe6, 0x64];
/// How often a thread's name is looked for.
const TRIES_MAX: u32 = 500;
/// `jmp $`
const LOOP: [u8; 2] = [0xeb, 0xfe];

/// The process. No test leaves it behind, because a VMM outlives its clients.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail for a process after it has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Vmm {
    child: Process,
    path: std::path::PathBuf,
    client: OwnedFd,
    log: File,
    console: File,
    next_id: u64,
    _dir: tempfile::TempDir,
}

fn dial(path: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

impl Vmm {
    fn start() -> Option<Vmm> {
        if !Path::new("/dev/kvm").exists() || !nix::unistd::Uid::effective().is_root() {
            eprintln!("skipped: needs root and /dev/kvm");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        let (log, console) = (file(&[]), file(&[]));
        let shared = dir.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_podvisor-vmm"))
            .current_dir(&shared)
            .stdin(Stdio::from(listener))
            .stdout(Stdio::from(console.try_clone().unwrap()))
            .stderr(Stdio::from(log.try_clone().unwrap()))
            .spawn()
            .unwrap();
        let client = dial(&path);
        let mut vmm = Vmm { child: Process(child), path, client, log, console, next_id: 1, _dir: dir };
        vmm.hello();
        Some(vmm)
    }

    /// Says the version, as each client does first.
    fn hello(&mut self) {
        let answer = self.ask(Request::Hello { version: PROTOCOL_VERSION }, &[]);
        assert!(matches!(answer, Ok(Response::Hello { version: PROTOCOL_VERSION, .. })), "{answer:?}");
    }

    /// Replaces the client by another.
    fn dial_again(&mut self) -> OwnedFd {
        let old = std::mem::replace(&mut self.client, dial(&self.path));
        self.hello();
        old
    }

    fn ask(&mut self, request: Request, fds: &[OwnedFd]) -> Result<Response, Refusal> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let id = self.next_id;
        self.next_id += 1;
        proto_vmm::send(&self.client, &Message::Request { id, request }, &fds).unwrap();
        match self.receive() {
            Some(Message::Response { id: answered, result }) if answered == id => result,
            other => panic!("{other:?} in place of an answer\n{}", self.log()),
        }
    }

    fn receive(&mut self) -> Option<Message> {
        proto_vmm::recv(&self.client).unwrap().map(|packet| packet.message)
    }

    /// Boots `code` as a kernel with the devices of every VM.
    fn boot(&mut self, code: &[u8]) -> Result<Response, Refusal> {
        let vsock = UnixListener::bind(self.path.with_file_name("vsock.sock")).unwrap();
        let fds = [file(&elf::kernel(code)).into(), image().into(), vsock.into()];
        let config = BootConfig {
            id: "test".into(),
            vcpus: 2,
            vcpus_at_boot: 1,
            memory_bytes: 64 << 20,
            memory_max_bytes: 64 << 20,
            kernel: FdIndex(0),
            cmdline: String::new(),
            devices: vec![
                (Slot::ROOT, Device::Pmem { image: FdIndex(1) }),
                (
                    Slot::VSOCK,
                    Device::Vsock {
                        listener: FdIndex(2),
                        guest_cid: 3,
                        host_ports: vec![1024],
                        program_port: None,
                    },
                ),
                (Slot::RNG, Device::Rng),
            ],
        };
        self.ask(Request::Boot(Box::new(config)), &fds)
    }

    /// Takes the stop report and the process's end.
    fn end(mut self) -> (StopReport, ExitStatus) {
        let Some(Message::Event(Event::Stopped(report))) = self.receive() else {
            panic!("no report\n{}", self.log());
        };
        assert!(self.receive().is_none());
        (*report, self.child.0.wait().unwrap())
    }

    fn log(&mut self) -> String {
        use std::io::Seek;
        let mut text = String::new();
        self.log.rewind().unwrap();
        self.log.read_to_string(&mut text).unwrap();
        text
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file
}

fn content(file: &File) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    // A file is shorter if it begins anew meanwhile.
    let length = file.read_at(&mut content, 0).unwrap();
    content.truncate(length);
    content
}

fn image() -> File {
    let file = file(&[]);
    file.set_len(2 << 20).unwrap();
    file
}

/// `mov dx, 0x3f8`, then `mov al, byte; out dx, al` for each.
fn print(text: &str) -> Vec<u8> {
    let mut code = vec![0x66, 0xba, 0xf8, 0x03];
    code.extend(text.bytes().flat_map(|byte| [0xb0, byte, 0xee]));
    code
}

#[test]
fn a_guest_that_panics_is_reported_and_the_process_ends() {
    let Some(mut vmm) = Vmm::start() else { return };
    let code = [print("Kernel panic - not syncing: oh\n"), RESET.to_vec()].concat();
    assert!(matches!(vmm.boot(&code), Ok(Response::Booted)));
    let console = vmm.console.try_clone().unwrap();
    let (report, status) = vmm.end();
    assert_eq!(report.reason, StopReason::GuestPanic { message: "oh".into() });
    assert_eq!(status.code(), Some(2));
    assert_eq!(content(&console), b"Kernel panic - not syncing: oh\n");
}

#[test]
fn a_console_without_end_has_a_bounded_file() {
    let Some(mut vmm) = Vmm::start() else { return };
    let line = print("0123456789abcdef0123456789abcdef0123456789abcdef\n");
    let back = -i32::try_from(line.len() + 5).unwrap();
    vmm.boot(&[line, vec![0xe9], back.to_le_bytes().to_vec()].concat()).unwrap();
    while !matches!(console_of(&content(&vmm.console)), (1.., _)) {
        vmm.ask(Request::Stats, &[]).unwrap();
    }
    assert!(vmm.console.metadata().unwrap().len() <= CONSOLE_FILE_BYTES_MAX);
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn devices_come_and_go_and_a_shutdown_ends_it_well() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&[print("up"), LOOP.to_vec()].concat()).unwrap();
    let disk = || Device::Blk { image: FdIndex(0), read_only: false };
    let plug = Request::Plug { slot: Slot::SCRATCH, device: disk() };
    assert!(matches!(vmm.ask(plug.clone(), &[image().into()]), Ok(Response::Plugged)));
    let taken = vmm.ask(plug, &[image().into()]).unwrap_err();
    assert_eq!(taken.message, "slot 11 is taken");
    let wrong = Request::Plug { slot: Slot::RNG, device: disk() };
    assert_eq!(vmm.ask(wrong, &[image().into()]).unwrap_err().message, "a blk device does not fit slot 2");
    let pmem =
        Request::Plug { slot: Slot::pmems().next().unwrap(), device: Device::Pmem { image: FdIndex(0) } };
    assert!(matches!(vmm.ask(pmem.clone(), &[image().into()]), Ok(Response::Plugged)));
    assert!(vmm.ask(pmem, &[]).unwrap_err().message.contains("descriptor 0 is missing"));
    let share = |tag: &str| Request::Plug { slot: Slot::FS, device: Device::Fs { tag: tag.into() } };
    assert!(vmm.ask(share(""), &[]).unwrap_err().message.contains("a tag has 1 to 36 bytes"));
    assert!(matches!(vmm.ask(share("podvisor"), &[]), Ok(Response::Plugged)));
    let unplug = Request::Unplug { slot: Slot::SCRATCH };
    assert!(matches!(vmm.ask(unplug.clone(), &[]), Ok(Response::Unplugged)));
    assert_eq!(vmm.ask(unplug, &[]).unwrap_err().message, "slot 11 is empty");
    // Whether one waits or not.
    let interrupt = Request::InterruptLockWaits { pids: vec![1, u32::MAX] };
    assert!(matches!(vmm.ask(interrupt, &[]), Ok(Response::LockWaitsInterrupted)));
    let groups = |count| Request::ShareGroups { groups: (0..count).collect() };
    assert!(matches!(vmm.ask(groups(256), &[]), Ok(Response::GroupsShared)));
    assert_eq!(vmm.ask(groups(257), &[]).unwrap_err().message, "257 groups are more than 256");
    let Ok(Response::Stats(stats)) = vmm.ask(Request::Stats, &[]) else { panic!("no stats") };
    assert!(stats.boot_requested_ns > 0);
    while !matches!(vmm.ask(Request::Console, &[]), Ok(Response::Console { text }) if text == "up") {}
    assert!(matches!(vmm.ask(Request::Shutdown, &[]), Ok(Response::ShuttingDown)));
    let (report, status) = vmm.end();
    assert_eq!(report.reason, StopReason::Requested);
    assert!(status.success());
}

#[test]
fn a_client_that_comes_later_learns_which_slots_are_filled() {
    let Some(mut vmm) = Vmm::start() else { return };
    assert_eq!(vmm.ask(Request::Slots, &[]).unwrap_err().message, "there is no VM yet");
    vmm.boot(&LOOP).unwrap();
    let image_slot = Slot::pmems().last().unwrap();
    for (slot, device) in [
        (Slot::SCRATCH, Device::Blk { image: FdIndex(0), read_only: false }),
        (Slot::volumes().last().unwrap(), Device::Blk { image: FdIndex(0), read_only: true }),
        (image_slot, Device::Pmem { image: FdIndex(0) }),
    ] {
        vmm.ask(Request::Plug { slot, device }, &[image().into()]).unwrap();
    }
    vmm.ask(Request::Plug { slot: Slot::BALLOON, device: Device::Balloon }, &[]).unwrap();
    vmm.ask(Request::Unplug { slot: image_slot }, &[]).unwrap();
    vmm.dial_again();
    let Ok(Response::Slots(slots)) = vmm.ask(Request::Slots, &[]) else { panic!("no slots") };
    let filled = |slot, kind, read_only| FilledSlot { slot, kind, read_only, bytes: 0 };
    let mut expected = vec![
        FilledSlot { bytes: 2 << 20, ..filled(Slot::ROOT, DeviceKind::Pmem, true) },
        filled(Slot::VSOCK, DeviceKind::Vsock, false),
        filled(Slot::RNG, DeviceKind::Rng, false),
        filled(Slot::BALLOON, DeviceKind::Balloon, false),
        filled(Slot::SCRATCH, DeviceKind::Blk, false),
        filled(Slot::volumes().last().unwrap(), DeviceKind::Blk, true),
    ];
    assert_eq!(slots, expected);
    // An earlier daemon is sent nothing it could not read.
    for version in [3, 2] {
        vmm.ask(Request::Hello { version }, &[]).unwrap();
        expected.retain(|filled| filled.slot.version().max(filled.kind.version()) <= version);
        let Ok(Response::Slots(slots)) = vmm.ask(Request::Slots, &[]) else { panic!("no slots") };
        assert_eq!(slots, expected);
    }
    assert_eq!(expected.len(), 4);
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_new_client_replaces_the_old_one_and_finds_the_vm() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    let old = vmm.dial_again();
    assert!(matches!(vmm.ask(Request::Stats, &[]), Ok(Response::Stats(_))));
    assert!(proto_vmm::recv(&old).unwrap().is_none());
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_client_without_a_version_or_with_an_old_one_is_refused_and_may_say_another() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    vmm.client = dial(&vmm.path);
    for request in [Request::Stats, Request::Shutdown] {
        let refused = vmm.ask(request, &[]).unwrap_err().message;
        let said =
            format!("this VMM speaks version {PROTOCOL_VERSION} of the protocol, and the daemon named none");
        assert_eq!(refused, said);
    }
    let refused = vmm.ask(Request::Hello { version: 0 }, &[]).unwrap_err().message;
    assert!(refused.contains("version 0 of the protocol, and this VMM 1"), "{refused}");
    vmm.hello();
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_vm_outlives_a_client_that_cannot_be_accepted() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    let pid = Pid::from_child(&vmm.child.0);
    let descriptors =
        |most| prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(most), maximum: Some(4096) });
    if descriptors(0).is_err() {
        eprintln!("skipped: needs CAP_SYS_RESOURCE");
        return;
    }
    let waiting = dial(&vmm.path);
    // Answered after the VMM has seen the other one, because its connection came first.
    assert!(matches!(vmm.ask(Request::Stats, &[]), Ok(Response::Stats(_))), "the old client stays");
    assert!(vmm.log().contains("no client can be accepted for now"));
    descriptors(4096).unwrap();
    vmm.client = waiting;
    vmm.hello();
    assert!(matches!(vmm.ask(Request::Stats, &[]), Ok(Response::Stats(_))));
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

/// Waits until the process has the threads of these vCPUs and no others: a thread gives itself its name.
fn assert_vcpus(vmm: &Vmm, expected: &[&str]) {
    let mut found = Vec::new();
    for _ in 0..TRIES_MAX {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", vmm.child.0.id())).unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        found = names.filter_map(|name| name.trim().strip_prefix("vcpu").map(str::to_owned)).collect();
        found.sort_unstable();
        if found == expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("vCPUs {found:?}, not {expected:?}");
}

#[test]
fn vcpus_are_made_when_they_are_asked_for_and_an_older_daemon_finds_all_of_them() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    assert_vcpus(&vmm, &["0"]);
    for wrong in [0, 3] {
        let refused = vmm.ask(Request::MakeVcpus { count: wrong }, &[]).unwrap_err();
        assert_eq!(refused.message, format!("{wrong} vCPUs: 1 to 2 are possible"));
    }
    for _ in 0..2 {
        let made = vmm.ask(Request::MakeVcpus { count: 2 }, &[]);
        assert!(matches!(made, Ok(Response::VcpusMade)), "{made:?}");
        assert_vcpus(&vmm, &["0", "1"]);
    }
    vmm.ask(Request::MakeVcpus { count: 1 }, &[]).unwrap();
    assert_vcpus(&vmm, &["0", "1"]);
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());

    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    vmm.ask(Request::Hello { version: proto_vmm::VCPUS_VERSION - 1 }, &[]).unwrap();
    assert_vcpus(&vmm, &["0", "1"]);
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_boot_that_cannot_be_is_refused_with_the_reason() {
    let Some(mut vmm) = Vmm::start() else { return };
    assert_eq!(vmm.ask(Request::Stats, &[]).unwrap_err().message, "there is no VM yet");
    let config = BootConfig {
        id: "test".into(),
        vcpus: 1,
        vcpus_at_boot: 0,
        memory_bytes: 64 << 20,
        memory_max_bytes: 64 << 20,
        kernel: FdIndex(0),
        cmdline: String::new(),
        devices: Vec::new(),
    };
    let refused = vmm.ask(Request::Boot(Box::new(config)), &[file(&elf::kernel(&LOOP)).into()]).unwrap_err();
    assert_eq!(refused.message, "a boot without the pmem device of slot 0");
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_process_without_a_vm_ends_with_its_client() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.ask(Request::Stats, &[]).unwrap_err();
    let Vmm { client, mut child, .. } = vmm;
    drop(client);
    assert_eq!(child.0.wait().unwrap().code(), Some(2));
}

#[test]
fn a_process_that_is_started_in_the_root_directory_shares_nothing_and_ends() {
    if Vmm::start().is_none() {
        return;
    }
    let vmm = Command::new(env!("CARGO_BIN_EXE_podvisor-vmm")).current_dir("/").output().unwrap();
    assert_eq!(vmm.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&vmm.stderr).contains("the process was started in /"), "{vmm:?}");
}

#[test]
fn the_process_is_locked_in() {
    let Some(mut vmm) = Vmm::start() else { return };
    vmm.boot(&LOOP).unwrap();
    let proc = Path::new("/proc").join(vmm.child.0.id().to_string());
    let status = std::fs::read_to_string(proc.join("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapPrm:"), "0000000000000000");
    assert_ne!(field("Uid:"), "0");
    assert_eq!(std::fs::read_dir(proc.join("root")).unwrap().count(), 0);
    for namespace in ["mnt", "net", "ipc"] {
        let theirs = std::fs::read_link(proc.join("ns").join(namespace)).unwrap();
        assert_ne!(theirs, std::fs::read_link(Path::new("/proc/self/ns").join(namespace)).unwrap());
    }
    for thread in std::fs::read_dir(proc.join("task")).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
        for set in ["CapEff", "CapPrm", "CapInh"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
    }
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}
