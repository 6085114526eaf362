//! Small guests of two to four vCPUs, on as many processors as there are. One vCPU uses its disk as an
//! orderly driver does. The others do anything to all other devices. Meanwhile the host pauses, plugs,
//! resizes, hangs up, saves and restores. Every call of the host must return, and the orderly vCPU must get
//! right answers.
//!
//! `PODVISOR_PARALLEL_SECONDS` runs guest after guest for so long. `PODVISOR_PARALLEL_SEED` is the first
//! seed. A failed run names its seed.

mod guest;
mod host;
mod script;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use self::guest::{done, load, write_script};
use self::host::Host;
use self::script::{Random, Role, disorderly, orderly, orderly_set_up, orderly_slot, prepare};
use super::*;
use crate::snapshot::Saved;
use crate::userfault::Userfault;

/// Guests without a given time, and acts of the host beside each.
const GUESTS: u64 = 8;
const ACTS: u64 = 40;

/// Longest time of one act. None takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most memory of a guest. Half of it is plugged while it runs.
const MEMORY_MAX: u64 = 64 << 20;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    guests: u64,
    acts: u64,
    saves: u64,
    rounds: u64,
    exits: u64,
}

/// Reports each act to the main thread before it begins.
struct Beats(Sender<String>);

impl Beats {
    fn begin(&self, act: String) {
        self.0.send(act).unwrap();
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn vcpus_that_hammer_all_devices_hang_nothing_and_get_right_answers() {
    let Some(kvm) = kvm() else { return };
    let (seconds, seed) = (number("PODVISOR_PARALLEL_SECONDS", 0), number("PODVISOR_PARALLEL_SEED", 1));
    let (beats, acts) = channel();
    let begin = Instant::now();
    let run = std::thread::spawn(move || {
        let (beats, mut counts) = (Beats(beats), Counts::default());
        while counts.guests < GUESTS || begin.elapsed() < Duration::from_secs(seconds) {
            one_guest(&kvm, seed + counts.guests, &beats, &mut counts);
        }
        counts
    });
    let mut last = String::new();
    loop {
        match acts.recv_timeout(PATIENCE) {
            Ok(act) => last = act,
            Err(RecvTimeoutError::Timeout) => panic!("this does not end: {last}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let counts = run.join().unwrap_or_else(|_| panic!("failed at: {last}"));
    println!("parallel: {counts:?} in {:?}", begin.elapsed());
}

/// One guest from its start to its end, all of it made from the seed.
fn one_guest(kvm: &Kvm, seed: u64, beats: &Beats, counts: &mut Counts) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let vcpus = 2 + (seed % 3) as u8;
    let grows = seed.is_multiple_of(2);
    let mut host = Host::new(seed);
    let config = VmConfig {
        vcpus,
        vcpus_at_boot: vcpus,
        memory_max_bytes: if grows { MEMORY_MAX } else { crate::RAM_MIN },
        backends: host.backends(),
        ..config()
    };
    beats.begin(format!("seed {seed}: build"));
    let scripts: Vec<_> = (0..vcpus).map(|vcpu| script(vcpu, &mut random)).collect();
    let mut vm = assemble(kvm, &config, |raw| {
        prepare(raw.memory);
        load(raw, &scripts)
    })
    .unwrap();
    vm.plug(orderly_slot(), host::orderly_disk()).unwrap();
    for (register, value) in orderly_set_up() {
        vm.bus.slot(orderly_slot()).write(register, &value.to_le_bytes());
    }
    host.plug_all(&mut vm);
    vm.resume().unwrap();
    for act in 0..ACTS {
        let what = host.choose(grows, &mut random);
        beats.begin(format!("seed {seed}, act {act}: {what:?}"));
        match what {
            host::Act::Rescript => rescript(&vm, vcpus, &mut random),
            other => host.act(other, &mut vm),
        }
        await_round(&vm, seed);
        counts.acts += 1;
    }
    check_answers(&vm, seed, counts);
    if !grows {
        vm = save_and_restore(kvm, vm, &config, &mut host, seed, beats);
        vm.resume().unwrap();
        counts.saves += 1;
        beats.begin(format!("seed {seed}: the orderly vCPU goes on"));
        await_round(&vm, seed);
        check_answers(&vm, seed, counts);
    }
    beats.begin(format!("seed {seed}: stop"));
    let report = vm.stop(StopReason::Requested);
    assert_eq!(report.reason, StopReason::Requested, "seed {seed}: {report:?}");
    counts.exits += report.exits.pio_out + report.exits.mmio_write;
    counts.guests += 1;
}

/// The first vCPU is the orderly one.
fn script(vcpu: u8, random: &mut Random) -> Vec<guest::Operation> {
    match vcpu {
        0 => orderly(),
        _ => disorderly([Role::Notifies, Role::Rewrites, Role::SetsUp][random.below(3) as usize], random),
    }
}

fn rescript(vm: &Vm, vcpus: u8, random: &mut Random) {
    vm.pause().unwrap();
    for vcpu in 1..vcpus {
        write_script(&vm.memory.writable(), vcpu.into(), &script(vcpu, random));
    }
    vm.resume().unwrap();
}

/// Waits until the orderly vCPU has been through its disk once more. It gets on in spite of all acts of the
/// host.
fn await_round(vm: &Vm, seed: u64) {
    let before = done(&vm.memory, 0).rounds;
    while done(&vm.memory, 0).rounds == before {
        assert!(vm.ended().read().is_err(), "seed {seed}: the guest has ended: {:?}", vm.ends.try_recv());
        std::thread::yield_now();
    }
}

/// Checks the orderly vCPU's answers.
fn check_answers(vm: &Vm, seed: u64, counts: &mut Counts) {
    let done = done(&vm.memory, 0);
    assert_eq!(
        done.wrong, [0; 3],
        "seed {seed}: wrong answers, a place and what is there: {:x?}",
        done.wrong
    );
    counts.rounds += done.rounds;
}

/// Saves the VM in the middle of everything, and lets another one go on.
fn save_and_restore(
    kvm: &Kvm,
    mut vm: Vm,
    config: &VmConfig,
    host: &mut Host,
    seed: u64,
    beats: &Beats,
) -> Vm {
    beats.begin(format!("seed {seed}: save"));
    // A mounted share is not saved.
    let _ = vm.unplug(Slot::FS);
    let file = super::save::memory_file();
    let state = vm.save(&file).unwrap();
    super::save::seal(&file);
    let slots: Vec<_> = vm.filled_slots().iter().map(|filled| filled.slot).collect();
    drop(vm);
    beats.begin(format!("seed {seed}: restore"));
    let devices = slots.into_iter().map(|slot| (slot, host.device(slot).unwrap())).collect();
    let saved =
        Saved { file, state: &state, first_writes: &[], first_reads: &[], userfault: Userfault::open().ok() };
    Vm::restore(|| BlankVm::new(kvm), config, saved, devices).unwrap()
}
