//! The MP table: a kernel without ACPI finds its processors and interrupt pins in it (Intel MultiProcessor
//! Specification 1.4, chapter 4). Pure except for the final write.

use vm_memory::{Bytes, GuestMemoryMmap};

use super::error::BootError;
use crate::layout::{IO_APIC, LOCAL_APIC, MP_POINTER, MP_TABLE};

/// Pins of KVM's I/O APIC.
const PINS: u8 = 24;
/// Number of the ISA bus; also the flag "edge-triggered, active high, as on that bus".
const ISA_BUS: u8 = 0;
const SPEC_1_4: u8 = 4;
const APIC_VERSION: u8 = 0x14;
const CPU_ENABLED: u8 = 1;
const CPU_BOOT: u8 = 2;
/// Entry types.
const PROCESSOR: u8 = 0;
const BUS: u8 = 1;
const IO_APIC_ENTRY: u8 = 2;
const IO_INTERRUPT: u8 = 3;
const LOCAL_INTERRUPT: u8 = 4;
/// Interrupt types.
const INT: u8 = 0;
const NMI: u8 = 1;
const EXT_INT: u8 = 3;
const HEADER_BYTES: usize = 44;

/// Writes the table for `vcpus` processors (1..=64) and the pointer to it.
pub(crate) fn write(memory: &GuestMemoryMmap, vcpus: u8) -> Result<(), BootError> {
    let table = table(vcpus);
    debug_assert!(table.len() as u64 <= MP_POINTER.0 - MP_TABLE.0);
    memory.write_slice(&table, MP_TABLE)?;
    memory.write_slice(&pointer(), MP_POINTER)?;
    Ok(())
}

/// Returns the byte to make the sum of all bytes zero.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte))
}

fn pointer() -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..4].copy_from_slice(b"_MP_");
    bytes[4..8].copy_from_slice(&table_address().to_le_bytes());
    bytes[8] = 1; // Length in paragraphs.
    bytes[9] = SPEC_1_4;
    bytes[10] = checksum(&bytes);
    bytes
}

fn table_address() -> u32 {
    u32::try_from(MP_TABLE.0).expect("below 1 MiB")
}

fn table(vcpus: u8) -> Vec<u8> {
    let io_apic_id = vcpus;
    let mut entries = Vec::new();
    for id in 0..vcpus {
        let flags = CPU_ENABLED | if id == 0 { CPU_BOOT } else { 0 };
        entries.extend([PROCESSOR, id, APIC_VERSION, flags]);
        entries.extend([0; 16]); // Signature and features: the kernel asks CPUID.
    }
    entries.extend([BUS, ISA_BUS]);
    entries.extend(b"ISA   ");
    entries.extend([IO_APIC_ENTRY, io_apic_id, 0x11, 1]);
    entries.extend(IO_APIC.to_le_bytes());
    for pin in 0..PINS {
        entries.extend([IO_INTERRUPT, INT, 0, 0, ISA_BUS, pin, io_apic_id, pin]);
    }
    entries.extend([LOCAL_INTERRUPT, EXT_INT, 0, 0, ISA_BUS, 0, 0, 0]);
    entries.extend([LOCAL_INTERRUPT, NMI, 0, 0, ISA_BUS, 0, 0xff, 1]);
    let count = u16::from(vcpus) + 2 + u16::from(PINS) + 2;
    let mut table = header(HEADER_BYTES + entries.len(), count).to_vec();
    table.extend(entries);
    table[7] = checksum(&table);
    table
}

fn header(length: usize, entries: u16) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..4].copy_from_slice(b"PCMP");
    bytes[4..6].copy_from_slice(&u16::try_from(length).expect("64 processors fit").to_le_bytes());
    bytes[6] = SPEC_1_4;
    bytes[8..16].copy_from_slice(b"PODVISOR");
    bytes[16..28].copy_from_slice(b"POD         ");
    bytes[34..36].copy_from_slice(&entries.to_le_bytes());
    bytes[36..40].copy_from_slice(&LOCAL_APIC.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_right_and_the_table_fits_at_its_largest() {
        for vcpus in [1, 64] {
            let table = table(vcpus);
            assert_eq!(checksum(&table), 0);
            assert_eq!(usize::from(u16::from_le_bytes([table[4], table[5]])), table.len());
            assert!(table.len() as u64 <= MP_POINTER.0 - MP_TABLE.0);
        }
        assert_eq!(checksum(&pointer()), 0);
    }

    #[test]
    fn entries_have_the_lengths_of_their_types_and_their_number() {
        let table = table(3);
        let (mut at, mut count) = (HEADER_BYTES, 0);
        while at < table.len() {
            at += if table[at] == PROCESSOR { 20 } else { 8 };
            count += 1;
        }
        assert_eq!((at, count), (table.len(), u16::from_le_bytes([table[34], table[35]])));
    }
}
