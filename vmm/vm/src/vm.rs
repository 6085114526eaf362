//! The VM as a whole: built, resumed, plugged, and in the end taken apart with a report.
//!
//! ```text
//!   build ─> built ──resume──> running ──a vCPU ends it, or stop()──> (consumed, StopReport)
//!              │ plug            │ plug, unplug, resize, pause, save, resume
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use kvm_bindings::CpuId;
use kvm_ioctls::{VcpuFd, VmFd};
use nix::sys::eventfd::{EfdFlags, EventFd};
use proto_vmm::{Device, DeviceKind, DeviceStats, ExitCounts, FilledSlot, Slot, StopReason, StopReport};
use vm_memory::{GuestAddress, GuestMemoryMmap};
use vmm_devices::virtio::mem::Mem;
use vmm_devices::virtio::{Counts, GuestMemory};

use crate::blank_vm::{BlankVm, BlankVmError, create_vcpu};
use crate::boot::{self, BootError, registers};
use crate::bus::{Bus, BusError};
use crate::clock::Milestones;
use crate::console::{CONSOLE_TAIL_BYTES, Console};
use crate::counters::Counters;
use crate::cpuid::{self, CpuidError};
use crate::device::{self, Backends, PlugError};
use crate::kvm_error::{KvmError, kvm_error};
use crate::layout;
use crate::memory::{self, MemoryError};
use crate::memory_hotplug::{MemoryHotplug, ResizeError};
use crate::pmem::PmemWindows;
use crate::snapshot::{VcpuSnapshotError, VmSnapshotError};
use crate::vcpu::{Vcpu, VcpuContext, VcpuEnd, VcpuError, VcpuThread};

/// Most vCPUs: the guest kernel's limit (CONFIG_NR_CPUS).
pub const VCPUS_MAX: u8 = 64;

/// IA32_MISC_ENABLE with fast string operations on, as firmware leaves it.
const MISC_ENABLE: kvm_bindings::kvm_msr_entry =
    kvm_bindings::kvm_msr_entry { index: 0x1a0, reserved: 0, data: 1 };

const EVENT: EfdFlags = EfdFlags::EFD_NONBLOCK.union(EfdFlags::EFD_CLOEXEC);

/// A VM to build, whatever its guest.
#[derive(Clone)]
pub struct VmConfig {
    /// The guest's vCPUs, `1..=VCPUS_MAX`; it brings up one.
    pub vcpus: u8,
    /// vCPUs made before the guest starts, `1..=vcpus`; [`Vm::make_vcpus`] makes others.
    pub vcpus_at_boot: u8,
    /// RAM in bytes, a multiple of 2 MiB, at least [`RAM_MIN`](crate::RAM_MIN).
    pub memory_bytes: u64,
    /// Most memory after [`resize`](Vm::resize), a multiple of 2 MiB, at least `memory_bytes`. The VM is
    /// built for less if it cannot have that much: at most 1 TiB, and at most half of the processor's address
    /// range.
    pub memory_max_bytes: u64,
    /// The parts of the VMM used by devices besides their files.
    pub backends: Backends,
    /// Takes the guest's console output.
    pub console: Console,
}

impl std::fmt::Debug for VmConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmConfig")
            .field("vcpus", &self.vcpus)
            .field("vcpus_at_boot", &self.vcpus_at_boot)
            .field("memory_bytes", &self.memory_bytes)
            .field("memory_max_bytes", &self.memory_max_bytes)
            .finish_non_exhaustive()
    }
}

/// The VM could not be built or driven.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VmError {
    #[error("{count} vCPUs: 1 to {most} are possible")]
    VcpuCount { count: u8, most: u8 },
    #[error(transparent)]
    Blank(#[from] BlankVmError),
    #[error(transparent)]
    Kvm(#[from] KvmError),
    #[error("cannot make an event")]
    Event(#[source] nix::Error),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Cpuid(#[from] CpuidError),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    #[error(transparent)]
    State(#[from] VmSnapshotError),
    #[error(transparent)]
    VcpuState(#[from] VcpuSnapshotError),
    #[error(transparent)]
    Resize(#[from] ResizeError),
}

/// A VM. Dropping it stops it. Fields are dropped in order: vCPU threads end before the devices, and both
/// before the memory they use.
pub struct Vm {
    pub(crate) vcpus: Vec<Vcpu>,
    /// The next vCPU, if it could not be completed: KVM makes none twice.
    incomplete: Option<VcpuFd>,
    /// Most vCPUs, and the parts for making further ones.
    vcpus_max: u8,
    supported: CpuId,
    /// MSRs to keep in a saved VM.
    pub(crate) msrs: Arc<[u32]>,
    context: VcpuContext,
    pub(crate) bus: Arc<Bus>,
    pub(crate) vm_fd: Arc<VmFd>,
    pub(crate) windows: PmemWindows,
    pub(crate) filled: BTreeMap<Slot, FilledSlot>,
    backends: Backends,
    pub(crate) memory_hotplug: MemoryHotplug,
    /// Features of the first vCPU.
    pub(crate) cpuid: CpuId,
    console: Console,
    counters: Arc<Counters>,
    milestones: Arc<Milestones>,
    ends: Receiver<VcpuEnd>,
    ended: Arc<EventFd>,
    pub(crate) memory: GuestMemory,
}

/// The parts of a VM before it has threads.
pub(crate) struct RawVm<'a> {
    pub(crate) vm: &'a VmFd,
    pub(crate) memory: &'a GuestMemoryMmap,
    pub(crate) vcpus: &'a [VcpuFd],
    /// Features of the first vCPU.
    pub(crate) cpuid: &'a CpuId,
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm").field("vcpus", &self.vcpus.len()).finish_non_exhaustive()
    }
}

impl Vm {
    /// Builds the VM and loads `kernel`, an uncompressed ELF file, with `cmdline` added to its command line.
    /// No vCPU runs yet, no slot is filled.
    pub fn build(blank: BlankVm, config: &VmConfig, kernel: &File, cmdline: &str) -> Result<Vm, VmError> {
        let memory = memory::create(config.memory_bytes)?;
        Vm::assemble(blank, config, memory, |raw| {
            let top = memory::ram_top(config.memory_bytes);
            let entry = boot::load(raw.memory, top, config.vcpus, kernel, cmdline)?;
            set_registers(&raw.vcpus[0], entry)
        })
    }

    /// Builds everything and lets `load` fill memory and set up the vCPUs.
    pub(crate) fn assemble<E: From<VmError>>(
        blank: BlankVm,
        config: &VmConfig,
        memory: GuestMemory,
        load: impl FnOnce(&RawVm<'_>) -> Result<(), E>,
    ) -> Result<Vm, E> {
        check_count(config.vcpus, VCPUS_MAX)?;
        check_count(config.vcpus_at_boot, config.vcpus)?;
        let BlankVm { vm: vm_fd, supported, msrs, registers, first } = blank;
        let limit = 1 << cpuid::physical_bits(&supported);
        let (memory_hotplug, pmem_base) = place_memory(&vm_fd, config, &memory, limit)?;
        let windows = PmemWindows::new(pmem_base, limit, memory.clone());
        let console = config.console.clone();
        let bus = Bus::new(&vm_fd, &memory, &registers, console.clone(), pmem_base).map_err(VmError::from)?;
        let bus = Arc::new(bus);
        let cpuid = cpuid::for_vcpu(&supported, 0, config.vcpus).map_err(VmError::from)?;
        set_features(&first, &cpuid).map_err(VmError::from)?;
        let mut fds = vec![first];
        fds.extend(create_vcpus(&vm_fd, &supported, 1..config.vcpus_at_boot, config.vcpus)?);
        load(&RawVm { vm: &vm_fd, memory: &memory.writable(), vcpus: &fds, cpuid: &cpuid })?;

        let (ends_sender, ends) = channel();
        let ended = Arc::new(EventFd::from_flags(EVENT).map_err(VmError::Event)?);
        let context = VcpuContext {
            bus: Arc::clone(&bus),
            counters: Arc::default(),
            milestones: Arc::default(),
            ends: ends_sender,
            ended: Arc::clone(&ended),
        };
        let (counters, milestones) = (context.counters.clone(), context.milestones.clone());
        let vcpus = start_vcpus(fds, &context).map_err(VmError::from)?;
        Ok(Vm {
            vcpus,
            incomplete: None,
            vcpus_max: config.vcpus,
            supported,
            msrs,
            context,
            bus,
            vm_fd,
            windows,
            filled: BTreeMap::new(),
            backends: config.backends.clone(),
            memory_hotplug,
            cpuid,
            console,
            counters,
            milestones,
            ends,
            ended,
            memory,
        })
    }

    /// Makes vCPUs until there are `count`, paused. After [`resume`](Self::resume) they wait for the guest to
    /// bring them up. Existing vCPUs stay, even if there are more than `count`.
    ///
    /// # Errors
    /// The guest knows of fewer, or KVM or the host has no room for one. Those made before stay, and a later
    /// call goes on after them.
    pub fn make_vcpus(&mut self, count: u8) -> Result<(), VmError> {
        check_count(count, self.vcpus_max)?;
        let first = u8::try_from(self.vcpus.len()).unwrap_or(VCPUS_MAX);
        for id in first..count {
            let fd = match self.incomplete.take() {
                Some(fd) => fd,
                None => create_vcpu(&self.vm_fd, id)?,
            };
            let fd = self.incomplete.insert(fd);
            set_features(fd, &cpuid::for_vcpu(&self.supported, id, self.vcpus_max)?)?;
            make_reachable(fd)?;
            let thread = VcpuThread::start(id, self.context.clone())?;
            self.vcpus.extend(self.incomplete.take().map(|fd| thread.take(fd)));
        }
        Ok(())
    }

    /// Returns the number of the guest's vCPUs, made or not.
    pub fn vcpus_max(&self) -> u8 {
        self.vcpus_max
    }

    /// Lets the vCPUs run: first after building, later after [`pause`](Self::pause). Running vCPUs continue.
    pub fn resume(&self) -> Result<(), VmError> {
        for vcpu in &self.vcpus {
            vcpu.resume()?;
        }
        Ok(())
    }

    /// Returns once no vCPU is in the guest.
    pub fn pause(&self) -> Result<(), VmError> {
        for vcpu in &self.vcpus {
            vcpu.pause()?;
        }
        Ok(())
    }

    /// Fills an empty slot. The guest finds the device when it probes the slot.
    pub fn plug(&mut self, slot: Slot, device: Device<OwnedFd>) -> Result<(), PlugError> {
        let (kind, read_only) = (device.kind(), device.read_only());
        if slot.kind() != Some(kind) {
            return Err(PlugError::Kind { device: kind, slot });
        }
        if self.filled.contains_key(&slot) {
            return Err(PlugError::Taken { slot });
        }
        let made = self.backends.make(&self.vm_fd, &mut self.windows, slot, device)?;
        let plugged = self.bus.slot(slot).plug(made);
        plugged.map_err(|error| {
            // A window without a device is useless. KVM lets it go, as it took it only a moment ago.
            let _ = self.windows.close(&self.vm_fd, slot);
            device::failed(slot)(error)
        })?;
        let bytes = self.windows.length(slot);
        self.filled.insert(slot, FilledSlot { slot, kind, read_only, bytes });
        Ok(())
    }

    /// Empties a slot no longer used by the guest. The device's files are closed when this returns. An
    /// image's files may be closed later: after other devices' current requests have read from it.
    pub fn unplug(&mut self, slot: Slot) -> Result<(), PlugError> {
        let device = self.bus.slot(slot).unplug().map_err(|_| PlugError::Empty { slot })?;
        drop(device);
        self.filled.remove(&slot);
        self.windows.close(&self.vm_fd, slot).map_err(|source| PlugError::Pmem { slot, source })
    }

    /// Returns the filled slots, in the table's order.
    pub fn filled_slots(&self) -> Vec<FilledSlot> {
        self.filled.values().copied().collect()
    }

    /// Offers the guest `memory_bytes` of memory in total. The device for it is plugged the first time. The
    /// guest plugs and unplugs in its own time, and [`resized`](Self::resized) reports the end.
    pub fn resize(&mut self, memory_bytes: u64) -> Result<(), ResizeError> {
        let Some(device) = self.memory_hotplug.offer(&self.vm_fd, &self.memory, memory_bytes)? else {
            return Ok(());
        };
        self.plug_memory(device)
    }

    /// Fills the memory device's slot.
    pub(crate) fn plug_memory(&mut self, device: Mem) -> Result<(), ResizeError> {
        self.bus.slot(Slot::MEM).plug(Box::new(device)).map_err(|error| {
            self.memory_hotplug.withdraw();
            ResizeError::Plug(error)
        })?;
        let filled = FilledSlot { slot: Slot::MEM, kind: DeviceKind::Mem, read_only: false, bytes: 0 };
        self.filled.insert(Slot::MEM, filled);
        Ok(())
    }

    /// Readable once the guest has completed the last [`resize`](Self::resize), growing or shrinking.
    pub fn resized(&self) -> &EventFd {
        self.memory_hotplug.settled()
    }

    /// Readable once a vCPU has ended the VM. Then [`stop`](Self::stop) has the reason.
    pub fn ended(&self) -> &EventFd {
        &self.ended
    }

    /// The console's content.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Exits so far.
    pub fn exits(&self) -> ExitCounts {
        self.counters.read()
    }

    /// Returns the devices' counts so far.
    pub fn device_stats(&self) -> Vec<DeviceStats> {
        let stats = self.filled.values().filter_map(|filled| {
            let (Counts { faults, dropped_received, dropped_sent }, queued) =
                self.bus.slot(filled.slot).counts()?;
            let FilledSlot { slot, kind, .. } = *filled;
            Some(DeviceStats { slot, kind, faults, dropped_received, dropped_sent, queued })
        });
        stats.collect()
    }

    /// Returns the time of the first vCPU's entry into the guest, in nanoseconds of CLOCK_MONOTONIC; 0 if not
    /// yet.
    pub fn guest_entered_ns(&self) -> u64 {
        self.milestones.guest_entered_ns()
    }

    /// Stops the vCPUs. The reason is the first one from a vCPU, or `otherwise`. Devices stop when the VM is
    /// dropped, which waits for their threads: one may be in a call of a file system that does not answer.
    pub fn stop(&mut self, otherwise: StopReason) -> StopReport {
        // All are asked to finish before waiting for any.
        for vcpu in &self.vcpus {
            vcpu.finish();
        }
        self.vcpus.clear();
        self.console.finish();
        let end = self.ends.try_recv().unwrap_or(VcpuEnd { reason: otherwise, registers: None });
        let reason = match (end.reason, self.console.panic_message()) {
            (StopReason::GuestReset, Some(message)) => StopReason::GuestPanic { message },
            (reason, _) => reason,
        };
        StopReport {
            reason,
            registers: end.registers,
            console: self.console.tail(CONSOLE_TAIL_BYTES),
            exits: self.exits(),
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        for vcpu in &self.vcpus {
            vcpu.finish();
        }
    }
}

/// Gives RAM to KVM and reserves room above. Returns the room, and the first address of images.
fn place_memory(
    vm: &VmFd,
    config: &VmConfig,
    memory: &GuestMemory,
    limit: u64,
) -> Result<(MemoryHotplug, u64), VmError> {
    let bytes = config.memory_bytes;
    let max = memory::most(bytes, config.memory_max_bytes, limit)?;
    memory::register(vm, memory)?;
    let room = MemoryHotplug::new(bytes, max, memory::make_room(bytes, max)?)?;
    Ok((room, layout::pmem_base(memory::top(bytes, max))))
}

/// Refuses a number of vCPUs that is 0 or above `most`.
fn check_count(count: u8, most: u8) -> Result<(), VmError> {
    if (1..=most).contains(&count) { Ok(()) } else { Err(VmError::VcpuCount { count, most }) }
}

/// Creates the vCPUs with these numbers, out of the guest's `count`.
fn create_vcpus(vm: &VmFd, supported: &CpuId, ids: Range<u8>, count: u8) -> Result<Vec<VcpuFd>, VmError> {
    ids.map(|id| {
        let fd = create_vcpu(vm, id)?;
        set_features(&fd, &cpuid::for_vcpu(supported, id, count)?)?;
        Ok(fd)
    })
    .collect()
}

/// Sets a vCPU's guest-visible features.
fn set_features(fd: &VcpuFd, features: &CpuId) -> Result<(), KvmError> {
    fd.set_cpuid2(features).map_err(kvm_error("set a vCPU's features"))
}

/// Makes KVM find a vCPU created while the guest runs. A start-up interrupt finds its vCPU by KVM's map of
/// local APICs. KVM drew this map before the vCPU was in the VM's list, and draws it again when an APIC's
/// state is written.
fn make_reachable(fd: &VcpuFd) -> Result<(), KvmError> {
    let step = "give a vCPU its local APIC";
    let apic = fd.get_lapic().map_err(kvm_error(step))?;
    fd.set_lapic(&apic).map_err(kvm_error(step))
}

/// Starts the threads of the first vCPUs, paused.
fn start_vcpus(fds: Vec<VcpuFd>, context: &VcpuContext) -> Result<Vec<Vcpu>, VcpuError> {
    let start = |(id, fd)| VcpuThread::start(id, context.clone()).map(|thread| thread.take(fd));
    (0..).zip(fds).map(start).collect()
}

/// Sets the first vCPU to the kernel's entry. All others wait for a start-up interrupt from the first.
fn set_registers(fd: &VcpuFd, entry: GuestAddress) -> Result<(), VmError> {
    let step = "set the first vCPU's registers";
    let sregs = fd.get_sregs().map_err(kvm_error(step))?;
    fd.set_sregs(&registers::special(sregs)).map_err(kvm_error(step))?;
    fd.set_regs(&registers::general(entry)).map_err(kvm_error(step))?;
    let msrs = kvm_bindings::Msrs::from_entries(&[MISC_ENABLE]).map_err(|_| CpuidError::TooLong)?;
    fd.set_msrs(&msrs).map_err(kvm_error(step))?;
    Ok(())
}

#[cfg(test)]
#[path = "vm_tests.rs"]
mod tests;
