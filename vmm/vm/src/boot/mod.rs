//! Loads a kernel into guest memory by the Linux 64-bit boot protocol (Documentation/arch/x86/boot.rst): an
//! uncompressed ELF kernel, `boot_params`, command line, MP table. This module keeps nothing: from the first
//! instruction on, all of it belongs to the guest.

mod command_line;
mod error;
mod kernel;
mod mp_table;
pub(crate) mod registers;

use std::fs::File;

use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::bootparam::boot_params;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

pub use command_line::{COMMAND_LINE_BYTES, CommandLineError};
pub use error::BootError;
pub use kernel::KernelError;

use crate::layout::{COMMAND_LINE, HIGH_RAM, LOW_RAM_END, MMIO_GAP, MMIO_GAP_END, ZERO_PAGE};

/// `setup_header.boot_flag` and `.header`. Linux does not check them but tools do.
const BOOT_FLAG: u16 = 0xaa55;
const HEADER_MAGIC: u32 = 0x5372_6448;
/// "Not one of the registered boot loaders".
const LOADER_UNDEFINED: u8 = 0xff;
const E820_RAM: u32 = 1;

/// Loads everything for a guest with `vcpus` processors and RAM up to `ram_top`. Returns the entry point.
pub(crate) fn load(
    memory: &GuestMemoryMmap,
    ram_top: u64,
    vcpus: u8,
    kernel: &File,
    cmdline: &str,
) -> Result<GuestAddress, BootError> {
    let line = command_line::compose(vcpus, cmdline)?;
    let entry = kernel::load(memory, kernel)?;
    memory.write_slice(line.as_bytes(), COMMAND_LINE)?;
    memory.write_obj(0u8, GuestAddress(COMMAND_LINE.0 + line.len() as u64))?;
    mp_table::write(memory, vcpus)?;
    registers::write_tables(memory)?;
    let parameters = BootParams::new(&parameters(ram_top, line.len()), ZERO_PAGE);
    LinuxBootConfigurator::write_bootparams(&parameters, memory).map_err(BootError::Parameters)?;
    Ok(entry)
}

fn parameters(ram_top: u64, line_bytes: usize) -> boot_params {
    let mut parameters = boot_params::default();
    parameters.hdr.type_of_loader = LOADER_UNDEFINED;
    parameters.hdr.boot_flag = BOOT_FLAG;
    parameters.hdr.header = HEADER_MAGIC;
    parameters.hdr.cmd_line_ptr = u32::try_from(COMMAND_LINE.0).expect("below 1 MiB");
    parameters.hdr.cmdline_size = u32::try_from(line_bytes).expect("at most COMMAND_LINE_BYTES");
    parameters.hdr.kernel_alignment = 0x100_0000;
    let ram = ram_map(ram_top);
    for (entry, (start, end)) in parameters.e820_table.iter_mut().zip(&ram) {
        entry.addr = *start;
        entry.size = end - start;
        entry.type_ = E820_RAM;
    }
    parameters.e820_entries = u8::try_from(ram.len()).expect("three at most");
    parameters
}

/// Returns RAM as (start, end), without pmem and without boot data the guest must not overwrite.
fn ram_map(ram_top: u64) -> Vec<(u64, u64)> {
    let mut map = vec![(0, LOW_RAM_END), (HIGH_RAM, ram_top.min(MMIO_GAP))];
    if ram_top > MMIO_GAP_END {
        map.push((MMIO_GAP_END, ram_top));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_leaves_out_the_mp_table_and_the_mmio_gap() {
        assert_eq!(ram_map(64 << 20), [(0, 0x9_f000), (0x10_0000, 64 << 20)]);
        assert_eq!(ram_map(6 << 30), [(0, 0x9_f000), (0x10_0000, 3 << 30), (4 << 30, 6 << 30)]);
    }
}
