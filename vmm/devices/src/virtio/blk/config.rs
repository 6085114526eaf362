//! The configuration space of a disk (virtio 1.2, section 5.2.4): its size, and the driver's limits for one
//! request.

use super::{DATA_SEGMENTS_MAX, RANGE_SECTORS_MAX, RANGES_MAX, SECTOR_BYTES, SEGMENT_BYTES_MAX};

/// The host file systems' block size in sectors, as a power of two, a hint for the driver. The disk's block
/// size stays at one sector, because partitions and file systems made elsewhere count on it.
const PHYSICAL_BLOCK_EXPONENT: u8 = 3;

/// Bytes of `struct virtio_blk_config` up to the fields of WRITE_ZEROES (section 5.2.4).
const CONFIG_BYTES: usize = 60;

/// Returns the configuration space of a disk of this size.
pub(super) fn config(sectors: u64) -> [u8; CONFIG_BYTES] {
    let mut config = [0; CONFIG_BYTES];
    let mut put = |offset: usize, bytes: &[u8]| config[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &sectors.to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &DATA_SEGMENTS_MAX.to_le_bytes());
    put(20, &(SECTOR_BYTES as u32).to_le_bytes());
    // TOPOLOGY: physical block, and the smallest useful transfer, in blocks.
    put(24, &[PHYSICAL_BLOCK_EXPONENT]);
    put(26, &(1u16 << PHYSICAL_BLOCK_EXPONENT).to_le_bytes());
    // DISCARD: sectors and ranges per request, and alignment.
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &RANGES_MAX.to_le_bytes());
    put(44, &(1u32 << PHYSICAL_BLOCK_EXPONENT).to_le_bytes());
    // WRITE_ZEROES: sectors and ranges per request, and a flag: UNMAP gives space back.
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &RANGES_MAX.to_le_bytes());
    put(56, &[1]);
    config
}
