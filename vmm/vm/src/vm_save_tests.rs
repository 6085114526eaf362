//! Saved VMs, and VMs restored from them.

use std::os::unix::fs::FileExt as _;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use proto_vmm::PageRun;

use super::*;
use crate::snapshot::{RestoreError, SaveError, Saved, State, VcpuSnapshot, VmSnapshot};
use crate::userfault::Userfault;

/// A sealable file in memory.
pub(super) fn memory_file() -> File {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    File::from(memfd_create(c"ram", flags).unwrap())
}

pub(super) fn seal(file: &File) {
    fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_WRITE)).unwrap();
}

/// A template: its memory and its state.
struct Template {
    memory: File,
    state: Vec<u8>,
    first_writes: Vec<PageRun>,
    first_reads: Vec<PageRun>,
}

impl Template {
    fn of(vm: &mut Vm) -> Template {
        let memory = memory_file();
        let state = vm.save(&memory).unwrap();
        seal(&memory);
        Template { memory, state, first_writes: Vec::new(), first_reads: Vec::new() }
    }

    fn restore(&self, kvm: &Kvm, devices: Vec<(Slot, Device<OwnedFd>)>) -> Result<Vm, RestoreError> {
        self.restore_as(kvm, &config(), devices)
    }

    fn restore_as(
        &self,
        kvm: &Kvm,
        config: &VmConfig,
        devices: Vec<(Slot, Device<OwnedFd>)>,
    ) -> Result<Vm, RestoreError> {
        let saved = Saved {
            file: self.memory.try_clone().unwrap(),
            state: &self.state,
            first_writes: &self.first_writes,
            first_reads: &self.first_reads,
            userfault: Userfault::open().ok(),
        };
        Vm::restore(|| BlankVm::new(kvm), config, saved, devices)
    }

    /// Returns this template with something else in the state.
    fn with(&self, change: impl FnOnce(&mut serde_json::Value)) -> Template {
        let mut value = serde_json::to_value(State::decode(&self.state).unwrap()).unwrap();
        change(&mut value);
        let state = serde_json::from_value::<State>(value).unwrap().encode().unwrap();
        let memory = self.memory.try_clone().unwrap();
        Template { memory, state, first_writes: Vec::new(), first_reads: Vec::new() }
    }
}

fn enter(vm: &Vm) {
    vm.resume().unwrap();
    while vm.guest_entered_ns() == 0 {
        std::thread::yield_now();
    }
}

fn byte(vm: &Vm, at: u64) -> u8 {
    vm.memory.writable().read_obj(GuestAddress(at)).unwrap()
}

/// A guest that leaves 1 at [`RESULT`] and waits until the byte after it is not 0. Then it adds to the first
/// one and resets.
///
/// `inc byte es:[0x3000]; l: cmp byte es:[0x3001], 0; je l; inc byte es:[0x3000]`, and [`RESET`].
fn waiting(kvm: &Kvm) -> Vm {
    let code = [
        0x26, 0xfe, 0x06, 0x00, 0x30, 0x26, 0x80, 0x3e, 0x01, 0x30, 0x00, 0x74, 0xf8, 0x26, 0xfe, 0x06, 0x00,
        0x30,
    ];
    let mut vm = real_mode(kvm, &[&code[..], &RESET].concat());
    vm.plug(Slot::RNG, Device::Rng).unwrap();
    vm.resume().unwrap();
    while byte(&vm, RESULT) == 0 {
        std::thread::yield_now();
    }
    vm
}

/// Lets such a waiting guest run to its end.
fn ends_and_leaves_the_template_alone(vm: Vm, template: &Template) {
    let memory = vm.memory.clone();
    memory.writable().write_obj(1u8, GuestAddress(RESULT + 1)).unwrap();
    assert_eq!(run(vm).reason, StopReason::GuestReset);
    assert_eq!(memory.writable().read_obj::<u8>(GuestAddress(RESULT)).unwrap(), 2);
    let mut content = [0; 2];
    template.memory.read_exact_at(&mut content, RESULT).unwrap();
    assert_eq!(content, [1, 0], "no guest changes the template");
}

fn rng() -> Vec<(Slot, Device<OwnedFd>)> {
    vec![(Slot::RNG, Device::Rng)]
}

#[test]
fn clones_go_on_where_the_saved_vm_stopped_each_in_memory_of_its_own() {
    let Some(kvm) = kvm() else { return };
    let saved = Template::of(&mut waiting(&kvm));
    let [one, other] = [(); 2].map(|()| saved.restore(&kvm, rng()).unwrap());
    assert_eq!(one.filled_slots().len(), 1);
    enter(&other);
    ends_and_leaves_the_template_alone(one, &saved);
    other.pause().unwrap();
    assert_eq!((byte(&other, RESULT), byte(&other, RESULT + 1)), (1, 0));
}

#[test]
fn a_clone_has_the_pages_that_it_will_use_and_runs_as_others_do() {
    let Some(kvm) = kvm() else { return };
    let page = u32::try_from(RESULT / 4096).unwrap();
    let first_writes = vec![PageRun { first: 0, count: 1 }, PageRun { first: page, count: 2 }];
    let first_reads = vec![PageRun { first: page + 2, count: 5 }];
    let saved = Template { first_writes, first_reads, ..Template::of(&mut waiting(&kvm)) };
    let clone = saved.restore(&kvm, rng()).unwrap();
    assert_eq!(byte(&clone, RESULT), 1);
    ends_and_leaves_the_template_alone(clone, &saved);
}

#[test]
fn pages_beyond_the_memory_are_refused() {
    let Some(kvm) = kvm() else { return };
    let last = u32::try_from(config().memory_bytes / 4096).unwrap() - 1;
    let beyond = vec![PageRun { first: last, count: 2 }];
    let written = Template { first_writes: beyond.clone(), ..Template::of(&mut waiting(&kvm)) };
    assert!(matches!(written.restore(&kvm, rng()), Err(RestoreError::FirstPages)));
    let read = Template { first_reads: beyond, ..Template::of(&mut waiting(&kvm)) };
    assert!(matches!(read.restore(&kvm, rng()), Err(RestoreError::FirstPages)));
}

#[test]
fn a_clone_of_a_clone_is_as_good() {
    let Some(kvm) = kvm() else { return };
    let saved = Template::of(&mut waiting(&kvm));
    let mut clone = saved.restore(&kvm, rng()).unwrap();
    enter(&clone);
    let again = Template::of(&mut clone);
    let last = again.restore(&kvm, rng()).unwrap();
    last.memory.writable().write_obj(1u8, GuestAddress(RESULT + 1)).unwrap();
    assert_eq!(run(last).reason, StopReason::GuestReset);
}

#[test]
fn a_clone_has_the_vcpus_that_were_made_and_makes_others_when_asked() {
    let Some(kvm) = kvm() else { return };
    let two = VmConfig { vcpus: 2, ..config() };
    let mut vm = assemble(&kvm, &two, |_| Ok(())).unwrap();
    let saved = Template::of(&mut vm);
    let mut clone = saved.restore_as(&kvm, &VmConfig { vcpus_at_boot: 2, ..two }, Vec::new()).unwrap();
    assert_eq!((clone.vcpus.len(), clone.vcpus_max()), (1, 2));
    clone.make_vcpus(2).unwrap();
    assert_eq!(clone.vcpus.len(), 2);
    assert!(clone.make_vcpus(3).is_err(), "the guest knows of two");
}

/// A host measures its TSC's rate at each boot, and a template may be from before the last one.
#[test]
fn a_clone_has_the_hosts_own_rate_for_all_its_vcpus() {
    let Some(kvm) = kvm() else { return };
    let two = VmConfig { vcpus: 2, ..config() };
    let saved = Template::of(&mut assemble(&kvm, &two, |_| Ok(())).unwrap());
    let rate = |state: &serde_json::Value| state["vcpus"][0]["tsc_khz"].as_u64().unwrap();
    let mut here = 0;
    let other = saved.with(|state| {
        here = rate(state);
        state["vcpus"][0]["tsc_khz"] = (here - 1).into();
    });
    let mut clone = other.restore_as(&kvm, &two, Vec::new()).unwrap();
    clone.make_vcpus(2).unwrap();
    let (_, vcpus) = clone.save_kvm().unwrap();
    let rates: Vec<u64> = vcpus.iter().map(|vcpu| vcpu.tsc_khz().into()).collect();
    assert_eq!(rates, [here; 2]);
    let far = saved.with(|state| state["vcpus"][0]["tsc_khz"] = (here * 101 / 100).into());
    let refused = far.restore_as(&kvm, &two, Vec::new()).unwrap_err();
    assert!(format!("{refused:?}").contains("TscRate"), "{refused:?}");
}

/// The age of a saved guest, in seconds: more than any test takes.
const AGE_S: u64 = 1_000_000;

/// Where KVM has offsets of the TSC. Emulated KVM may have none.
#[test]
fn a_vcpu_made_behind_a_restore_has_the_time_of_the_first() {
    let Some(kvm) = kvm() else { return };
    let two = VmConfig { vcpus: 2, ..config() };
    let saved = Template::of(&mut assemble(&kvm, &two, |_| Ok(())).unwrap());
    let mut second = 0;
    let old = saved.with(|state| {
        second = state["vcpus"][0]["tsc_khz"].as_u64().unwrap() * 1000;
        state["vcpus"][0]["tsc_khz"] = (second / 1000 - 1).into();
        let msrs = state["vcpus"][0]["msrs"].as_array_mut().unwrap();
        // The TSC is the first one.
        let mut tsc: kvm_bindings::kvm_msr_entry = serde_json::from_value(msrs[0].clone()).unwrap();
        assert_eq!(tsc.index, 0x10);
        tsc.data = AGE_S * second;
        msrs[0] = serde_json::to_value(tsc).unwrap();
    });
    let mut clone = old.restore_as(&kvm, &two, Vec::new()).unwrap();
    clone.make_vcpus(2).unwrap();
    let (_, vcpus) = clone.save_kvm().unwrap();
    let tsc: Vec<u64> = vcpus.iter().map(VcpuSnapshot::tsc).collect();
    if tsc[0] < AGE_S * second {
        eprintln!("skipped: this KVM sets no TSC");
        return;
    }
    assert!(tsc[1] >= AGE_S * second, "{tsc:?}");
}

#[test]
fn vcpus_that_could_not_be_made_are_made_by_a_later_request() {
    let Some(kvm) = kvm() else { return };
    let mut vm = assemble(&kvm, &VmConfig { vcpus: 4, ..config() }, |_| Ok(())).unwrap();
    vm.make_vcpus(2).unwrap();
    // KVM has made the third one before its features are missed.
    let supported = std::mem::replace(&mut vm.supported, CpuId::from_entries(&[]).unwrap());
    for _ in 0..2 {
        assert!(matches!(vm.make_vcpus(4), Err(VmError::Cpuid(_))));
        assert_eq!(vm.vcpus.len(), 2);
    }
    vm.supported = supported;
    vm.make_vcpus(4).unwrap();
    assert_eq!(vm.vcpus.len(), 4);
    // Each has a thread that answers.
    Template::of(&mut vm);
}

#[test]
fn what_kvm_keeps_is_the_same_after_a_restore() {
    let Some(kvm) = kvm() else { return };
    // mov ebx, 0x12345678; jmp $
    let mut vm = real_mode(&kvm, &[0x66, 0xbb, 0x78, 0x56, 0x34, 0x12, 0xeb, 0xfe]);
    enter(&vm);
    let saved = Template::of(&mut vm);
    let (before, vcpus) = vm.save_kvm().unwrap();
    let restored = saved.restore(&kvm, Vec::new()).unwrap();
    let (after, again): (VmSnapshot, Vec<VcpuSnapshot>) = restored.save_kvm().unwrap();
    assert_eq!(again[0].without_time(), vcpus[0].without_time());
    assert!(before.clock_ns().abs_diff(after.clock_ns()) < 60_000_000_000, "the guest's clock goes on");
}

#[test]
fn a_running_vm_has_no_state_to_save() {
    let Some(kvm) = kvm() else { return };
    let vm = real_mode(&kvm, &[0xeb, 0xfe]);
    vm.resume().unwrap();
    assert!(vm.save_kvm().is_err());
}

#[test]
fn a_saved_vm_goes_on_and_its_clone_from_the_same_moment() {
    let Some(kvm) = kvm() else { return };
    let mut vm = waiting(&kvm);
    let saved = Template::of(&mut vm);
    vm.go_on().unwrap();
    let clone = saved.restore(&kvm, rng()).unwrap();
    for vm in [vm, clone] {
        ends_and_leaves_the_template_alone(vm, &saved);
    }
}

#[test]
fn a_vm_that_could_not_be_saved_goes_on() {
    let Some(kvm) = kvm() else { return };
    let mut vm = waiting(&kvm);
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!(matches!(vm.save(&full), Err(SaveError::Memory(_))));
    vm.go_on().unwrap();
    vm.go_on().unwrap();
    vm.memory.writable().write_obj(1u8, GuestAddress(RESULT + 1)).unwrap();
    assert_eq!(run(vm).reason, StopReason::GuestReset);
}

/// Without a driver nothing is plugged, so the saved state is changed as if one had.
#[test]
fn a_grown_vm_is_restored_with_the_memory_that_it_had_grown_by() {
    let Some(kvm) = kvm() else { return };
    let config = VmConfig { memory_max_bytes: 512 << 20, ..config() };
    let mut vm = assemble(&kvm, &config, |_| Ok(())).unwrap();
    vm.resize(config.memory_bytes + (64 << 20)).unwrap();
    let memory = memory_file();
    let state = vm.save(&memory).unwrap();
    let place = config.memory_bytes + (2 << 20);
    assert_eq!(memory.metadata().unwrap().len(), config.memory_bytes + (128 << 20), "a block of Linux'");
    memory.write_all_at(b"grown", place + 4096).unwrap();
    memory.write_all_at(b"unplugged", config.memory_bytes).unwrap();
    seal(&memory);
    let saved = Template { memory, state, first_writes: Vec::new(), first_reads: Vec::new() };
    let saved =
        saved.with(|state| state["slots"][0][1]["device"] = plugged_block(&state["slots"][0][1]["device"]));
    let mut clone = saved.restore_as(&kvm, &config, Vec::new()).unwrap();
    assert_eq!(clone.filled_slots(), vm.filled_slots());
    let base = crate::memory::room(config.memory_bytes, config.memory_max_bytes).unwrap().0;
    let read = |clone: &Vm, at| clone.memory.writable().read_obj::<[u8; 5]>(GuestAddress(at)).ok();
    assert_eq!(read(&clone, base + (2 << 20) + 4096).as_ref(), Some(b"grown"));
    assert_eq!(read(&clone, base), None, "the guest has not plugged it");
    clone.resize(config.memory_max_bytes).unwrap();
    let again = Template::of(&mut clone);
    let last = again.restore_as(&kvm, &config, Vec::new()).unwrap();
    assert_eq!(read(&last, base + (2 << 20) + 4096).as_ref(), Some(b"grown"));
    let beyond = saved.with(|state| state["memory_given_bytes"] = (1u64 << 40).into());
    assert!(beyond.restore_as(&kvm, &config, Vec::new()).is_err());
}

/// The memory device's state with its second block plugged.
fn plugged_block(text: &serde_json::Value) -> serde_json::Value {
    let mut state: serde_json::Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    state["plugged"] = serde_json::json!([[1, 1]]);
    state.to_string().into()
}

#[test]
fn an_image_lies_where_the_saved_guest_knows_it() {
    let Some(kvm) = kvm() else { return };
    let image = || Device::Pmem { image: file(layout::LARGE_PAGE).into() };
    let [first, second] = [17, 18].map(|number| Slot::new(number).unwrap());
    let mut vm = assemble(&kvm, &config(), |_| Ok(())).unwrap();
    vm.plug(first, image()).unwrap();
    vm.plug(second, image()).unwrap();
    vm.unplug(first).unwrap();
    let saved = Template::of(&mut vm);
    let clone = saved.restore(&kvm, vec![(second, image())]).unwrap();
    assert_eq!(clone.filled_slots(), vm.filled_slots());
}

#[test]
fn a_vm_whose_memory_cannot_be_written_is_not_saved() {
    let Some(kvm) = kvm() else { return };
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!(matches!(waiting(&kvm).save(&full), Err(SaveError::Memory(_))));
}

#[test]
fn a_template_of_another_shape_is_refused() {
    let Some(kvm) = kvm() else { return };
    let saved = Template::of(&mut waiting(&kvm));
    for config in [
        VmConfig { vcpus: 2, ..config() },
        VmConfig { memory_max_bytes: 64 << 20, ..config() },
        VmConfig { memory_bytes: 64 << 20, memory_max_bytes: 64 << 20, ..config() },
    ] {
        let refused = saved.restore_as(&kvm, &config, rng());
        assert!(matches!(refused, Err(RestoreError::Size { .. })), "{config:?}");
    }
    assert!(matches!(saved.restore(&kvm, Vec::new()), Err(RestoreError::Slots { .. })));
    let root = (Slot::ROOT, Device::Pmem { image: file(layout::LARGE_PAGE).into() });
    assert!(matches!(saved.restore(&kvm, vec![root]), Err(RestoreError::Slots { .. })));
    let twice = rng().into_iter().chain(rng()).collect();
    assert!(matches!(saved.restore(&kvm, twice), Err(RestoreError::Slots { .. })));
}

#[test]
fn a_state_that_does_not_fit_this_host_or_build_is_refused() {
    let Some(kvm) = kvm() else { return };
    let saved = Template::of(&mut waiting(&kvm));
    let refused = |change: fn(&mut serde_json::Value)| saved.with(change).restore(&kvm, rng()).unwrap_err();
    assert!(matches!(refused(|state| state["format"] = 7.into()), RestoreError::Format { format: 7 }));
    let mut longer = saved.with(|_| ());
    longer.state.push(0);
    assert!(matches!(longer.restore(&kvm, rng()), Err(RestoreError::StateEnd { bytes: 1 })));
    let other_processor = refused(|state| {
        let features = state["cpuid"].as_array_mut().unwrap();
        features.pop();
    });
    assert!(
        matches!(other_processor, RestoreError::Processors | RestoreError::State(_)),
        "{other_processor}"
    );
    let other_device = refused(|state| state["slots"][0][1]["device_id"] = 7.into());
    assert!(matches!(other_device, RestoreError::Device { .. }), "{other_device}");
    assert!(saved.with(|_| ()).restore(&kvm, rng()).is_ok());
}

#[test]
fn a_truncated_state_is_refused_wherever_it_ends() {
    let Some(kvm) = kvm() else { return };
    let saved = Template::of(&mut waiting(&kvm));
    for part in 0..16 {
        let state = saved.state[..saved.state.len() * part / 16].to_vec();
        let memory = saved.memory.try_clone().unwrap();
        let short = Template { memory, state, first_writes: Vec::new(), first_reads: Vec::new() };
        assert!(matches!(short.restore(&kvm, rng()), Err(RestoreError::State(_))), "{part}");
    }
}
