//! The bus: everything a vCPU reaches outside its memory. It has the table of virtio-mmio slots, a doorbell
//! for each slot, the serial port, and the one byte of a keyboard controller for a guest's reset of its VM.
//! The bus is called on vCPU threads; each slot has its own lock. At an unused address, a read returns all
//! ones and a write is dropped, as on a real bus. Reads of slots do not come here: their registers are memory
//! readable by the guest (`register_pages.rs`).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvm_ioctls::{IoEventAddress, VmFd};
use proto_vmm::{Slot, StopReason};
use vmm_devices::legacy::serial::{REGISTERS, Serial, SerialSnapshot};
use vmm_devices::virtio::GuestMemory;
use vmm_devices::virtio::mmio::{InterruptLine, MmioTransport, QueueEvents};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::console::Console;
use crate::layout::{DOORBELL_STRIDE, DOORBELLS, SLOT_STRIDE, SLOTS, doorbell};
use crate::register_pages::RegisterPages;

/// The keyboard controller's command and status port, and the command for a reset.
const I8042_COMMAND: u16 = 0x64;
const I8042_RESET: u8 = 0xfe;
/// The status byte. A driver's probe gives up at once, because the output buffer never empties. A kernel that
/// wants to reset finds the input buffer free (`kb_wait` in arch/x86/kernel/reboot.c).
const I8042_STATUS: u8 = 0x01;
/// First I/O port and interrupt pin of the first serial port.
const SERIAL_PORT: u16 = 0x3f8;
const SERIAL_IRQ: u32 = 4;

/// The bus could not be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BusError {
    #[error("cannot make an interrupt event")]
    Event(#[source] std::io::Error),
    #[error("cannot connect an event to interrupt pin {pin}")]
    Interrupt { pin: u32, source: kvm_ioctls::Error },
}

/// The slots and ports of a VM, shared by its vCPU threads and the [`Vm`](crate::Vm).
#[derive(Debug)]
pub(crate) struct Bus {
    slots: Vec<Mutex<MmioTransport>>,
    serial: Mutex<Serial<Console>>,
    /// First address of the pmem windows. They are read-only.
    pmem_base: u64,
}

impl Bus {
    /// Empty slots, and a serial port writing to `console`. The VM already has its irqchip.
    pub(crate) fn new(
        vm: &Arc<VmFd>,
        memory: &GuestMemory,
        registers: &RegisterPages,
        console: Console,
        pmem_base: u64,
    ) -> Result<Bus, BusError> {
        let mut pins = BTreeMap::new();
        let slots = Slot::all()
            .map(|slot| {
                let pin = pins.entry(slot.irq()).or_insert_with(|| Pin::new(vm, slot.irq()));
                let interrupt = Arc::clone(pin);
                let events = SlotEvents { vm: Arc::clone(vm), doorbell: doorbell(slot.number()) };
                let page = registers.page(slot);
                Mutex::new(MmioTransport::new(memory.clone(), page, interrupt, Box::new(events)))
            })
            .collect();
        let serial = Serial::new(console, Some(irqfd(vm, SERIAL_IRQ)?));
        Ok(Bus { slots, serial: Mutex::new(serial), pmem_base })
    }

    /// Returns the transport of `slot`.
    pub(crate) fn slot(&self, slot: Slot) -> MutexGuard<'_, MmioTransport> {
        self.slots[usize::from(slot.number())].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from an address without memory or a slot.
    pub(crate) fn mmio_read(data: &mut [u8]) {
        data.fill(0xff);
    }

    /// Handles a write. If the write ends the VM, the error is the reason.
    pub(crate) fn mmio_write(&self, address: u64, data: &[u8]) -> Result<(), StopReason> {
        if let Some((slot, offset)) = slot_at(address) {
            self.slot(slot).write(offset, data);
            Ok(())
        } else if address >= self.pmem_base {
            // KVM turns a write to a read-only memory slot into this exit.
            let message = format!("the guest wrote to read-only image memory at {address:#x}");
            Err(StopReason::Vmm { message })
        } else {
            Ok(())
        }
    }

    pub(crate) fn port_read(&self, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        if port == I8042_COMMAND {
            data.fill(I8042_STATUS);
        } else if let (Some(register), [byte]) = (serial_register(port), data) {
            *byte = self.serial().read(register);
        }
    }

    /// Handles a write. If the write ends the VM, the error is the reason. The console knows whether a reset
    /// was a panic.
    pub(crate) fn port_write(&self, port: u16, data: &[u8]) -> Result<(), StopReason> {
        if port == I8042_COMMAND && data == [I8042_RESET] {
            return Err(StopReason::GuestReset);
        }
        if let (Some(register), [byte]) = (serial_register(port), data) {
            self.serial().write(register, *byte);
        } else if let (Some(slot), Ok(queue)) = (slot_rung(port), data.try_into()) {
            // Only if KVM has no event for this write.
            self.slot(slot).notify(u32::from_le_bytes(queue));
        }
        Ok(())
    }

    /// Returns the serial port's current registers.
    pub(crate) fn save_serial(&self) -> SerialSnapshot {
        self.serial().save()
    }

    /// Restores the registers of a saved serial port.
    pub(crate) fn restore_serial(&self, saved: &SerialSnapshot) -> std::io::Result<()> {
        self.serial().restore(saved)
    }

    fn serial(&self) -> MutexGuard<'_, Serial<Console>> {
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the serial port's register at `port`.
fn serial_register(port: u16) -> Option<u8> {
    let register = u8::try_from(port.checked_sub(SERIAL_PORT)?).ok()?;
    (register < REGISTERS).then_some(register)
}

/// Returns the slot with registers at `address`, and the offset in them.
fn slot_at(address: u64) -> Option<(Slot, u64)> {
    let offset = address.checked_sub(SLOTS)?;
    let number = u8::try_from(offset / SLOT_STRIDE).ok()?;
    Some((Slot::new(number)?, offset % SLOT_STRIDE))
}

/// Returns the slot with its doorbell at `port`.
fn slot_rung(port: u16) -> Option<Slot> {
    let offset = port.checked_sub(DOORBELLS)?;
    let number = u8::try_from(offset / DOORBELL_STRIDE).ok()?;
    Slot::new(number).filter(|_| offset.is_multiple_of(DOORBELL_STRIDE))
}

/// Returns an event for raising `pin`: a write to the event raises it.
fn irqfd(vm: &VmFd, pin: u32) -> Result<EventFd, BusError> {
    let event = EventFd::new(EFD_NONBLOCK).map_err(BusError::Event)?;
    vm.register_irqfd(&event, pin).map_err(|source| BusError::Interrupt { pin, source })?;
    Ok(event)
}

/// A pin of the irqchip. A pulse is two calls on the calling thread. An irqfd would be one call, but for a
/// pin of the IOAPIC KVM passes it to a kernel thread, and two thread switches cost more than the second
/// call.
#[derive(Debug)]
struct Pin {
    vm: Arc<VmFd>,
    number: u32,
    /// Locked during a pulse. While another slot held the line up, a rise would be no edge.
    pulse: Mutex<()>,
}

impl Pin {
    fn new(vm: &Arc<VmFd>, number: u32) -> Arc<Pin> {
        Arc::new(Pin { vm: Arc::clone(vm), number, pulse: Mutex::new(()) })
    }
}

impl InterruptLine for Pin {
    fn pulse(&self) -> io::Result<()> {
        let _whole = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        for level in [true, false] {
            self.vm
                .set_irq_line(self.number, level)
                .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        }
        Ok(())
    }
}

/// Connects one slot's queue notifications to events inside KVM, at its doorbell.
#[derive(Debug)]
struct SlotEvents {
    vm: Arc<VmFd>,
    doorbell: u16,
}

impl SlotEvents {
    fn address(&self) -> IoEventAddress {
        IoEventAddress::Pio(self.doorbell.into())
    }
}

impl QueueEvents for SlotEvents {
    fn register(&self, event: &EventFd, queue: u16) -> std::io::Result<()> {
        Ok(self.vm.register_ioevent(event, &self.address(), u32::from(queue))?)
    }

    fn unregister(&self, event: &EventFd, queue: u16) -> std::io::Result<()> {
        Ok(self.vm.unregister_ioevent(event, &self.address(), u32::from(queue))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::slot_address;

    #[test]
    fn addresses_find_their_slots() {
        assert_eq!(slot_at(SLOTS), Some((Slot::ROOT, 0)));
        assert_eq!(slot_at(SLOTS + 0x1050), Some((Slot::VSOCK, 0x50)));
        assert_eq!(slot_at(SLOTS - 1), None);
        assert_eq!(slot_at(SLOTS + 0x1000 * u64::from(Slot::COUNT)), None);
        assert_eq!(slot_at(u64::MAX), None);
    }

    #[test]
    fn doorbells_find_their_slots() {
        assert_eq!(slot_rung(DOORBELLS), Some(Slot::ROOT));
        assert_eq!(slot_rung(doorbell(Slot::VSOCK.number())), Some(Slot::VSOCK));
        assert_eq!(slot_rung(DOORBELLS + 1), None);
        assert_eq!(slot_rung(DOORBELLS - 1), None);
        assert_eq!(slot_rung(doorbell(Slot::COUNT)), None);
        assert_eq!(slot_rung(u16::MAX), None);
    }

    /// The guest kernel's driver computes the port from six bits of the registers' address.
    #[test]
    fn the_guest_kernel_finds_the_doorbells() {
        let build = include_str!("../../../guest-image/kernel/build.sh");
        let rule =
            format!("{DOORBELLS:#x} + (vm_dev->pdev->resource->start >> 12 \\& 63) * {DOORBELL_STRIDE}");
        assert!(build.contains(&rule), "{rule}");
        for slot in Slot::all() {
            let of_kernel = (slot_address(slot.number()) >> 12 & 63) * 4 + 0x6000;
            assert_eq!(of_kernel, u64::from(doorbell(slot.number())));
        }
    }
}
