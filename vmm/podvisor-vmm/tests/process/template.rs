//! Templates: one process saves its VM, and others go on from it, each in its jail.

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use proto_vmm::{PageRun, RestoreConfig};

use super::*;

/// `l: mov al, '.'; out dx, al; jmp l`, with the serial port in DX.
fn dots() -> Vec<u8> {
    [&[0x66, 0xba, 0xf8, 0x03][..], &[0xb0, b'.', 0xee, 0xeb, 0xfb]].concat()
}

struct Template {
    memory: File,
    state: File,
}

impl Template {
    /// Saves a guest printing without end.
    fn make() -> Option<Template> {
        let mut vmm = Vmm::start()?;
        vmm.boot(&dots()).unwrap();
        while !matches!(vmm.ask(Request::Console, &[]), Ok(Response::Console { text }) if text.starts_with('.'))
        {
        }
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = File::from(memfd_create(c"memory", flags).unwrap());
        let state = file(&[]);
        let fds = [memory.try_clone().unwrap().into(), state.try_clone().unwrap().into()];
        let save = Request::Save { memory: FdIndex(0), state: FdIndex(1) };
        assert!(matches!(vmm.ask(save, &fds), Ok(Response::Saved)), "{}", vmm.log());
        vmm.ask(Request::Shutdown, &[]).unwrap();
        assert!(vmm.end().1.success());
        Some(Template { memory, state })
    }

    fn seal(&self) {
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        fcntl(&self.memory, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    }

    fn restore(&self, vmm: &mut Vmm) -> Result<Response, Refusal> {
        let path = vmm.path.with_file_name("vsock.sock");
        let _ = std::fs::remove_file(&path);
        let vsock = UnixListener::bind(path).unwrap();
        let (memory, state) = (self.memory.try_clone().unwrap(), self.state.try_clone().unwrap());
        let fds = [memory.into(), state.into(), image().into(), vsock.into()];
        let config = RestoreConfig {
            id: "test".into(),
            vcpus: 2,
            memory_bytes: 64 << 20,
            memory_max_bytes: 64 << 20,
            memory: FdIndex(0),
            state: FdIndex(1),
            first_writes: vec![PageRun { first: 0, count: 3 }],
            first_reads: vec![PageRun { first: 3, count: 2 }],
            devices: vec![
                (Slot::ROOT, Device::Pmem { image: FdIndex(2) }),
                (
                    Slot::VSOCK,
                    Device::Vsock {
                        listener: FdIndex(3),
                        guest_cid: 3,
                        host_ports: vec![1024],
                        program_port: None,
                    },
                ),
                (Slot::RNG, Device::Rng),
            ],
        };
        vmm.ask(Request::Restore(Box::new(config)), &fds)
    }
}

#[test]
fn guests_go_on_from_a_template_in_processes_of_their_own() {
    let Some(template) = Template::make() else { return };
    template.seal();
    for _ in 0..2 {
        let mut vmm = Vmm::start().unwrap();
        let restored = template.restore(&mut vmm);
        assert!(matches!(restored, Ok(Response::Restored)), "{restored:?}\n{}", vmm.log());
        while !matches!(vmm.ask(Request::Console, &[]), Ok(Response::Console { text }) if text.starts_with('.'))
        {
        }
        assert_eq!(template.restore(&mut vmm).unwrap_err().message, "the VM is booted already");
        let Ok(Response::Slots(slots)) = vmm.ask(Request::Slots, &[]) else { panic!("no slots") };
        assert_eq!(slots.len(), 3);
        let plug = Request::Plug {
            slot: Slot::SCRATCH,
            device: Device::Blk { image: FdIndex(0), read_only: false },
        };
        assert!(matches!(vmm.ask(plug, &[image().into()]), Ok(Response::Plugged)));
        vmm.ask(Request::Shutdown, &[]).unwrap();
        assert!(vmm.end().1.success());
    }
}

#[test]
fn a_template_that_is_no_good_is_refused_and_the_process_can_boot() {
    let Some(template) = Template::make() else { return };
    let mut vmm = Vmm::start().unwrap();
    let refused = template.restore(&mut vmm).unwrap_err().message;
    assert!(refused.contains("not sealed"), "{refused}");
    template.seal();
    template.state.set_len(1000).unwrap();
    let refused = template.restore(&mut vmm).unwrap_err().message;
    assert!(refused.contains("cannot read the saved state"), "{refused}");
    template.state.set_len(1 << 30).unwrap();
    let refused = template.restore(&mut vmm).unwrap_err().message;
    assert!(refused.contains("a saved state of 8388609 bytes"), "{refused}");
    let _ = std::fs::remove_file(vmm.path.with_file_name("vsock.sock"));
    assert!(matches!(vmm.boot(&LOOP), Ok(Response::Booted)));
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}

#[test]
fn a_process_without_a_vm_saves_none_and_a_full_file_is_an_error() {
    let Some(mut vmm) = Vmm::start() else { return };
    let full = || OwnedFd::from(File::options().write(true).open("/dev/full").unwrap());
    let save = Request::Save { memory: FdIndex(0), state: FdIndex(1) };
    assert_eq!(vmm.ask(save.clone(), &[full(), full()]).unwrap_err().message, "there is no VM yet");
    vmm.boot(&LOOP).unwrap();
    let refused = vmm.ask(save, &[full(), full()]).unwrap_err().message;
    assert!(refused.contains("cannot write the VM's memory"), "{refused}");
    vmm.ask(Request::Shutdown, &[]).unwrap();
    assert!(vmm.end().1.success());
}
