//! The kernel's command line. Pure.

use std::fmt::Write;

use proto_vmm::Slot;

use crate::layout::slot_address;

/// COMMAND_LINE_SIZE of x86 (arch/x86/include/asm/setup.h), the terminating NUL included.
pub const COMMAND_LINE_BYTES: usize = 2048;

/// The first part of every guest's command line, before its slots.
///
/// `quiet`: each byte on the serial port is an exit. `panic=-1 reboot=k`: a panic resets through the keyboard
/// controller at once, and the reset ends the VM. `maxcpus=1`: the agent brings the other vCPUs up.
/// `rootwait`: the kernel registers a pmem disk asynchronously, and waits for it only with this parameter.
/// `tsc=reliable`: KVM keeps the counter in step; watching it costs two wake-ups a second.
/// `random.trust_cpu`: the processor's random numbers count, so nothing waits for entropy.
/// `percpu_alloc=page`: with a single processor, the kernel would make per-CPU areas of 2 MiB, and 4 MiB
/// beside each for its accounting (`pcpuobj_ext` of mm/percpu-internal.h).
const OURS: &str = "console=ttyS0 quiet panic=-1 reboot=k 8250.nr_uarts=1 tsc=reliable \
    maxcpus=1 random.trust_cpu=on percpu_alloc=page root=/dev/pmem0 rootwait=5 rootfstype=erofs rootflags=dax=always ro \
    init=/podvisor-agent";

/// Added if the guest may get further processors. With one processor at boot, the kernel removes the `lock`
/// prefix at 9,000 places of its code, and puts it back when the second processor comes up. Without this
/// parameter, each VM from a template would then have its own copy of all the code.
const FOR_SEVERAL: &str = " noreplace-smp";

/// The command line would not fit.
#[derive(Debug, thiserror::Error)]
#[error("a kernel command line of {length} bytes, at most {} are possible", COMMAND_LINE_BYTES - 1)]
pub struct CommandLineError {
    /// Bytes of the whole line, including the addition.
    pub length: usize,
}

/// Composes the line from [`OURS`], the slot table and `added`, for a guest with `vcpus` processors.
pub(crate) fn compose(vcpus: u8, added: &str) -> Result<String, CommandLineError> {
    let mut line = OURS.to_owned();
    if vcpus > 1 {
        line.push_str(FOR_SEVERAL);
    }
    for slot in Slot::all() {
        let address = slot_address(slot.number());
        write!(line, " virtio_mmio.device=4K@{address:#x}:{}:{slot}", slot.irq())
            .expect("a String takes all that is written");
    }
    if !added.is_empty() {
        line.push(' ');
        line.push_str(added);
    }
    if line.len() >= COMMAND_LINE_BYTES {
        return Err(CommandLineError { length: line.len() });
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_on_the_line_and_there_is_room_for_more() {
        let line = compose(2, "quiet").unwrap();
        assert_eq!(line.matches("virtio_mmio.device=4K@0x").count(), usize::from(Slot::COUNT));
        assert!(line.contains(" virtio_mmio.device=4K@0xd0001000:5:1 "));
        assert!(line.len() < COMMAND_LINE_BYTES - 300, "{}", line.len());
    }

    #[test]
    fn code_for_one_processor_is_for_guests_that_get_no_other() {
        assert!(!compose(1, "").unwrap().contains("noreplace-smp"));
        assert!(compose(2, "").unwrap().contains(" noreplace-smp "));
    }

    #[test]
    fn a_line_that_does_not_fit_is_refused() {
        assert!(compose(1, &"x".repeat(COMMAND_LINE_BYTES)).is_err());
    }
}
