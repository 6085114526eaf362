//! Tiny guests, written byte by byte, on the bare /dev/kvm. Without one these tests say so and pass.

use std::io::Write;
use std::os::fd::AsFd;

use kvm_ioctls::Kvm;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{Bytes, GuestMemory as _};

use vmm_devices::virtio::blk::FullDisks;

use super::*;
use crate::layout::PAGE_TABLES;

const CODE: u64 = 0x1000;
/// Address for the guests' results.
const RESULT: u64 = 0x3000;
/// `mov al, 0xfe; out 0x64, al`
const RESET: [u8; 4] = [0xb0, 0xfe, 0xe6, 0x64];

fn file(bytes: u64) -> File {
    let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    file
}

fn config() -> VmConfig {
    VmConfig {
        vcpus: 1,
        vcpus_at_boot: 1,
        memory_bytes: crate::RAM_MIN,
        memory_max_bytes: crate::RAM_MIN,
        backends: Backends {
            guest_stream: Arc::new(|_, _| false),
            share: None,
            full_disks: FullDisks::new().unwrap(),
        },
        console: Console::default(),
    }
}

fn kvm() -> Option<Kvm> {
    let kvm = Kvm::new();
    if let Err(error) = &kvm {
        eprintln!("skipped: no /dev/kvm ({error})");
    }
    kvm.ok()
}

fn assemble(
    kvm: &Kvm,
    config: &VmConfig,
    load: impl FnOnce(&RawVm<'_>) -> Result<(), VmError>,
) -> Result<Vm, VmError> {
    Vm::assemble(BlankVm::new(kvm)?, config, memory::create(config.memory_bytes)?, load)
}

/// A vm about to run `code` in real mode, its DS at the slot table, its ES at 0.
fn real_mode(kvm: &Kvm, code: &[u8]) -> Vm {
    assemble(kvm, &config(), |RawVm { memory, vcpus: fds, .. }| {
        memory.write_slice(code, GuestAddress(CODE)).unwrap();
        let mut sregs = fds[0].get_sregs().unwrap();
        (sregs.cs.base, sregs.cs.selector) = (0, 0);
        (sregs.es.base, sregs.es.selector) = (0, 0);
        sregs.ds.base = layout::SLOTS;
        fds[0].set_sregs(&sregs).unwrap();
        let regs = kvm_bindings::kvm_regs { rip: CODE, rsp: 0x8000, rflags: 2, ..Default::default() };
        fds[0].set_regs(&regs).unwrap();
        Ok(())
    })
    .unwrap()
}

/// A vm about to run `code` in 64-bit mode, with the first and the fifth GiB (where the first image
/// lies) mapped onto themselves.
fn long_mode(kvm: &Kvm, code: &[u8]) -> Vm {
    long_mode_with(kvm, &config(), code)
}

fn long_mode_with(kvm: &Kvm, config: &VmConfig, code: &[u8]) -> Vm {
    assemble(kvm, config, |RawVm { memory, vcpus: fds, .. }| {
        registers::write_tables(memory)?;
        let directory = PAGE_TABLES.0 + 3 * 4096;
        memory.write_obj(directory | 3, GuestAddress(PAGE_TABLES.0 + 4096 + 4 * 8)).unwrap();
        memory.write_obj((4u64 << 30) | 0x83, GuestAddress(directory)).unwrap();
        memory.write_slice(code, GuestAddress(CODE)).unwrap();
        set_registers(&fds[0], GuestAddress(CODE))
    })
    .unwrap()
}

/// Runs until the guest ends.
fn run(mut vm: Vm) -> StopReport {
    vm.resume().unwrap();
    await_end(&vm);
    vm.stop(StopReason::Requested)
}

fn await_end(vm: &Vm) {
    let mut fds = [PollFd::new(vm.ended().as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(20_000u16)).unwrap(), 1, "the guest did not end");
}

/// `mov dx, 0x3f8`, then `mov al, byte; out dx, al` for each.
fn print(text: &str) -> Vec<u8> {
    let mut code = vec![0xba, 0xf8, 0x03];
    code.extend(text.bytes().flat_map(|byte| [0xb0, byte, 0xee]));
    code
}

/// Whether a thread of this process has this name.
fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|other| other.trim() == name)
}

#[test]
fn a_vcpus_thread_has_its_name_as_soon_as_the_vcpu_is_made() {
    let Some(kvm) = kvm() else { return };
    let mut vm = assemble(&kvm, &VmConfig { vcpus: VCPUS_MAX, ..config() }, |_| Ok(())).unwrap();
    for count in 2..=VCPUS_MAX {
        vm.make_vcpus(count).unwrap();
        assert!(has_thread(&format!("vcpu{}", count - 1)), "the daemon finds it by its name");
    }
}

#[test]
fn what_a_guest_prints_is_on_the_console_and_a_reset_ends_it() {
    let Some(kvm) = kvm() else { return };
    let report = run(real_mode(&kvm, &[print("hello\n"), RESET.to_vec()].concat()));
    assert_eq!(report.reason, StopReason::GuestReset);
    assert_eq!(report.console, "hello\n");
    assert_eq!(report.exits.pio_out, 7);
    assert!(report.registers.is_some_and(|registers| registers.rip >= CODE));
}

#[test]
fn a_reset_after_a_panic_is_reported_as_the_panic() {
    let Some(kvm) = kvm() else { return };
    let text = "Kernel panic - not syncing: no root\n";
    let report = run(real_mode(&kvm, &[print(text), RESET.to_vec()].concat()));
    assert_eq!(report.reason, StopReason::GuestPanic { message: "no root".into() });
}

#[test]
fn a_triple_fault_is_reported_with_registers() {
    let Some(kvm) = kvm() else { return };
    // mov ebx, 0x1234; mov eax, 2 GiB; mov al, [rax]: not mapped, and no interrupt table is valid.
    let code = [0xbb, 0x34, 0x12, 0, 0, 0xb8, 0, 0, 0, 0x80, 0x8a, 0x00];
    let report = run(long_mode(&kvm, &code));
    assert_eq!(report.reason, StopReason::TripleFault);
    assert_eq!(report.registers.unwrap().rbx, 0x1234);
}

#[test]
fn an_instruction_that_kvm_cannot_emulate_is_reported_with_its_bytes() {
    let Some(kvm) = kvm() else { return };
    // paddb mm0, ds:[0]. KVM would have to emulate it because there is no memory there.
    let report = run(real_mode(&kvm, &[0x0f, 0xfc, 0x06, 0x00, 0x00, 0xf4]));
    let StopReason::InternalError { suberror: 1, instruction } = report.reason else {
        panic!("{:?}", report.reason);
    };
    assert!(instruction.is_empty() || instruction.starts_with(&[0x0f, 0xfc, 0x06]), "{instruction:x?}");
}

/// Reads the first three registers of the rng slot: magic, version, device ID.
fn probe(plugged: bool) -> [u32; 3] {
    let Some(kvm) = kvm() else { return [0x7472_6976, 2, if plugged { 4 } else { 0 }] };
    let mut code = Vec::new();
    for register in 0..3u8 {
        // mov eax, ds:[0x2000 + 4 * register]; mov es:[RESULT + 4 * register], eax
        code.extend([0x66, 0xa1, 4 * register, 0x20, 0x26, 0x66, 0xa3, 4 * register, 0x30]);
    }
    code.extend(RESET);
    let mut vm = real_mode(&kvm, &code);
    if plugged {
        vm.plug(Slot::RNG, Device::Rng).unwrap();
    }
    let memory = vm.memory.clone();
    let report = run(vm);
    assert_eq!((report.reason, report.exits.mmio_read), (StopReason::GuestReset, 0), "registers are memory");
    memory.writable().read_obj(GuestAddress(RESULT)).unwrap()
}

#[test]
fn an_empty_slot_is_a_virtio_device_without_an_id() {
    assert_eq!(probe(false), [0x7472_6976, 2, 0]);
}

#[test]
fn a_plugged_slot_has_its_devices_id() {
    assert_eq!(probe(true), [0x7472_6976, 2, 4]);
}

#[test]
fn slots_take_only_what_fits_and_only_once() {
    let Some(kvm) = kvm() else { return };
    let mut vm = real_mode(&kvm, &RESET);
    assert!(matches!(vm.plug(Slot::VSOCK, Device::Rng), Err(PlugError::Kind { .. })));
    vm.plug(Slot::RNG, Device::Rng).unwrap();
    assert!(matches!(vm.plug(Slot::RNG, Device::Rng), Err(PlugError::Taken { .. })));
    vm.unplug(Slot::RNG).unwrap();
    assert!(matches!(vm.unplug(Slot::RNG), Err(PlugError::Empty { .. })));
    let odd = Device::Pmem { image: file(4096).into() };
    assert!(matches!(vm.plug(Slot::ROOT, odd), Err(PlugError::Pmem { .. })));
    vm.plug(Slot::ROOT, Device::Pmem { image: file(layout::LARGE_PAGE).into() }).unwrap();
    let bytes = layout::LARGE_PAGE;
    let root = FilledSlot { slot: Slot::ROOT, kind: DeviceKind::Pmem, read_only: true, bytes };
    assert_eq!(vm.filled_slots(), [root]);
    vm.unplug(Slot::ROOT).unwrap();
    assert_eq!(vm.filled_slots(), []);
    let share = Device::Fs { tag: "podvisor".into() };
    assert!(matches!(vm.plug(Slot::FS, share), Err(PlugError::NoShare { .. })));
}

#[test]
fn image_memory_can_be_read_and_a_write_ends_the_vm() {
    let Some(kvm) = kvm() else { return };
    // mov rax, 4 GiB; mov bl, [rax]; mov [rax], bl; hlt
    let code = [0x48, 0xb8, 0, 0, 0, 0, 1, 0, 0, 0, 0x8a, 0x18, 0x88, 0x18, 0xf4];
    let mut vm = long_mode(&kvm, &code);
    let mut image = file(layout::LARGE_PAGE);
    image.write_all(&[0x5a]).unwrap();
    vm.plug(Slot::ROOT, Device::Pmem { image: image.into() }).unwrap();
    let report = run(vm);
    let StopReason::Vmm { message } = report.reason else { panic!("{:?}", report.reason) };
    assert!(message.contains("read-only image memory at 0x100000000"), "{message}");
    assert_eq!(report.registers.unwrap().rbx, 0x5a);
}

#[test]
fn a_guest_reads_an_image_of_several_files_and_writes_to_none() {
    let Some(kvm) = kvm() else { return };
    // mov rax, 4 GiB; mov bl, [rax]; mov rax, 4 GiB + 8192; mov bh, [rax]; mov rax, 4 GiB + 4096; mov cl,
    // [rax]; mov [rax], bl; hlt
    let code = [
        0x48, 0xb8, 0, 0, 0, 0, 1, 0, 0, 0, 0x8a, 0x18, 0x48, 0xb8, 0, 0x20, 0, 0, 1, 0, 0, 0, 0x8a, 0x38,
        0x48, 0xb8, 0, 0x10, 0, 0, 1, 0, 0, 0, 0x8a, 0x08, 0x88, 0x18, 0xf4,
    ];
    let mut vm = long_mode(&kvm, &code);
    let part = |offset, length, first: u8| {
        let mut file = file(length);
        file.write_all(&[first]).unwrap();
        proto_vmm::ImagePart { file: file.into(), offset, length }
    };
    let parts = vec![part(0, 4096, 0x5a), part(8192, 4096, 0x17)];
    vm.plug(Slot::ROOT, Device::Layered { parts }).unwrap();
    assert_eq!(vm.filled_slots()[0].bytes, layout::LARGE_PAGE);
    let report = run(vm);
    let StopReason::Vmm { message } = report.reason else { panic!("{:?}", report.reason) };
    assert!(
        message.contains("read-only image memory at 0x100001000"),
        "a gap is none to write to: {message}"
    );
    let registers = report.registers.unwrap();
    assert_eq!((registers.rbx & 0xffff, registers.rcx & 0xff), (0x175a, 0));
}

#[test]
fn an_image_whose_files_overlap_leaves_its_slot_empty() {
    let Some(kvm) = kvm() else { return };
    let mut vm = real_mode(&kvm, &RESET);
    let part = |offset| proto_vmm::ImagePart { file: file(8192).into(), offset, length: 8192 };
    let refused = vm.plug(Slot::ROOT, Device::Layered { parts: vec![part(0), part(4096)] });
    assert!(matches!(refused, Err(PlugError::Pmem { .. })));
    assert_eq!(vm.filled_slots(), []);
    vm.plug(Slot::ROOT, Device::Layered { parts: vec![part(0), part(8192)] }).unwrap();
}

#[test]
fn a_guest_that_loops_is_stopped_paused_and_resumed() {
    let Some(kvm) = kvm() else { return };
    let mut vm = real_mode(&kvm, &[0xeb, 0xfe]);
    for _ in 0..20 {
        vm.resume().unwrap();
        vm.pause().unwrap();
    }
    vm.resume().unwrap();
    assert_eq!(vm.stop(StopReason::Requested).reason, StopReason::Requested);
}

#[test]
fn a_vm_is_offered_memory_up_to_its_most() {
    let Some(kvm) = kvm() else { return };
    let config = VmConfig { memory_max_bytes: 512 << 20, ..config() };
    let mut vm = assemble(&kvm, &config, |_| Ok(())).unwrap();
    let id = |vm: &Vm| vm.bus.slot(Slot::MEM).device_id();
    vm.resize(crate::RAM_MIN).unwrap();
    assert_eq!((id(&vm), vm.resized().read().is_ok()), (0, true), "there is nothing to do");
    for bytes in [crate::RAM_MIN + (2 << 20), 512 << 20, 256 << 20, 512 << 20, crate::RAM_MIN] {
        vm.resize(bytes).unwrap();
    }
    assert_eq!(id(&vm), 24);
    assert_eq!(vm.filled_slots().iter().map(|filled| filled.kind).collect::<Vec<_>>(), [DeviceKind::Mem]);
    for bytes in [0, crate::RAM_MIN - (2 << 20), crate::RAM_MIN + 4096, (512 << 20) + (2 << 20)] {
        assert!(matches!(vm.resize(bytes), Err(ResizeError::Size { .. })), "{bytes}");
    }
}

#[test]
fn a_guest_reaches_memory_that_it_was_offered() {
    let Some(kvm) = kvm() else { return };
    // mov rax, 4 GiB; mov byte [rax], 0x5a; mov bl, [rax]; mov al, 0xfe; out 0x64, al
    let code = [0x48, 0xb8, 0, 0, 0, 0, 1, 0, 0, 0, 0xc6, 0x00, 0x5a, 0x8a, 0x18, 0xb0, 0xfe, 0xe6, 0x64];
    let config = VmConfig { memory_max_bytes: 64 << 20, ..config() };
    let mut vm = long_mode_with(&kvm, &config, &code);
    vm.resize(64 << 20).unwrap();
    let report = run(vm);
    assert_eq!((report.reason, report.registers.unwrap().rbx), (StopReason::GuestReset, 0x5a));
}

#[test]
fn devices_reach_neither_room_nor_what_is_offered_but_not_plugged() {
    let Some(kvm) = kvm() else { return };
    let config = VmConfig { memory_max_bytes: 512 << 20, ..config() };
    let mut vm = assemble(&kvm, &config, |_| Ok(())).unwrap();
    let reached = |vm: &Vm| vm.memory.readable().check_range(GuestAddress(4 << 30), 1);
    assert!(!reached(&vm));
    vm.resize(512 << 20).unwrap();
    assert!(!reached(&vm));
}

#[test]
fn devices_read_an_image_while_it_is_plugged() {
    let Some(kvm) = kvm() else { return };
    let mut vm = real_mode(&kvm, &RESET);
    let mut image = file(layout::LARGE_PAGE);
    image.write_all(&[0x5a]).unwrap();
    vm.plug(Slot::ROOT, Device::Pmem { image: image.into() }).unwrap();
    assert_eq!(vm.memory.readable().read_obj::<u8>(GuestAddress(4 << 30)).unwrap(), 0x5a);
    assert!(!vm.memory.writable().check_range(GuestAddress(4 << 30), 1));
    vm.unplug(Slot::ROOT).unwrap();
    assert!(!vm.memory.readable().check_range(GuestAddress(4 << 30), 1));
}

#[test]
fn a_vm_on_a_host_with_terabytes_is_built_for_less() {
    let Some(kvm) = kvm() else { return };
    let config = VmConfig { memory_max_bytes: 3 << 40, ..config() };
    let mut vm = assemble(&kvm, &config, |_| Ok(())).unwrap();
    let Err(ResizeError::Size { most, .. }) = vm.resize(3 << 40) else { panic!("it is there") };
    assert!(most <= 1 << 40, "{most}");
    vm.plug(Slot::ROOT, Device::Pmem { image: file(layout::LARGE_PAGE).into() }).unwrap();
}

#[test]
fn odd_vms_are_refused() {
    let Some(kvm) = kvm() else { return };
    let build = |vcpus, memory_bytes| {
        let config = VmConfig { vcpus, memory_bytes, memory_max_bytes: memory_bytes, ..config() };
        Vm::build(BlankVm::new(&kvm).unwrap(), &config, &file(0), "")
    };
    assert!(matches!(build(0, 64 << 20), Err(VmError::VcpuCount { .. })));
    assert!(matches!(build(65, 64 << 20), Err(VmError::VcpuCount { .. })));
    assert!(matches!(build(1, 1 << 20), Err(VmError::Memory(_))));
    assert!(matches!(build(1, 64 << 20), Err(VmError::Boot(BootError::Kernel(_)))));
}

#[path = "vm_save_tests.rs"]
mod save;

#[path = "vm_parallel_tests/mod.rs"]
mod parallel;
