//! On-disk structures (kernel `fs/erofs/erofs_fs.h`). Owns byte layouts; never decides positions.
//!
//! All numbers are little-endian. The superblock is at byte 1024 of block 0. An inode's number (nid) is its
//! byte position divided by 32.

use crate::attributes::Timestamp;

/// Bytes of one block: a page, as DAX requires.
pub(crate) const BLOCK_SIZE: u32 = 4096;

/// Shift of [`BLOCK_SIZE`].
const BLOCK_BITS: u8 = 12;

/// Nids count units of this many bytes.
pub(crate) const SLOT_BYTES: u64 = 32;

/// Bytes of an extended inode. This form has 64-bit sizes and its own time.
pub(crate) const INODE_BYTES: u64 = 64;

/// Bytes of a directory entry, without its name.
pub(crate) const DIRENT_BYTES: usize = 12;

const SUPER_OFFSET: usize = 1024;
const SUPER_MAGIC: u32 = 0xe0f5_e1e2;
const FEATURE_COMPAT_SB_CHKSUM: u32 = 1;
const FEATURE_COMPAT_MTIME: u32 = 2;

/// Storage of a node's data: in its own blocks.
pub(crate) const LAYOUT_PLAIN: u16 = 0;
/// Storage of a node's data: the last, partial block follows the inode.
pub(crate) const LAYOUT_INLINE: u16 = 2;

/// File types, of `i_mode` (`S_IF*`) and of directory entries (`FT_*` in `include/linux/fs_types.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Symlink,
}

impl FileType {
    pub(crate) fn mode(self) -> u16 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Regular => 0o100_000,
            FileType::Symlink => 0o120_000,
        }
    }

    pub(crate) fn dirent(self) -> u8 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Symlink => 7,
        }
    }
}

/// The superblock's fields.
pub(crate) struct Superblock {
    pub(crate) root_nid: u16,
    pub(crate) inodes: u64,
    pub(crate) blocks: u32,
    pub(crate) uuid: [u8; 16],
}

impl Superblock {
    /// Encodes block 0, including the checksum. The kernel sums from the superblock to the end of the block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE as usize];
        let mut put = |at: usize, bytes: &[u8]| {
            block[SUPER_OFFSET + at..SUPER_OFFSET + at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &SUPER_MAGIC.to_le_bytes());
        put(8, &(FEATURE_COMPAT_SB_CHKSUM | FEATURE_COMPAT_MTIME).to_le_bytes());
        put(12, &[BLOCK_BITS]);
        put(14, &self.root_nid.to_le_bytes());
        put(16, &self.inodes.to_le_bytes());
        // The build time (24 and 32) stays 0, so a tree gives the same bytes whenever it is written.
        put(36, &self.blocks.to_le_bytes());
        // meta_blkaddr (40) and xattr_blkaddr (44) stay 0: nids count from the start, and no attribute is
        // shared.
        put(48, &self.uuid);
        let sum = crc32c(&block[SUPER_OFFSET..]);
        block[SUPER_OFFSET + 4..SUPER_OFFSET + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }
}

/// An extended inode.
pub(crate) struct Inode {
    pub(crate) layout: u16,
    pub(crate) xattr_icount: u16,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    /// First block of the data, or the device number.
    pub(crate) union: u32,
    pub(crate) number: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) nlink: u32,
}

impl Inode {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let format = 1 | (self.layout << 1);
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&self.xattr_icount.to_le_bytes());
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.union.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.uid.to_le_bytes());
        out.extend_from_slice(&self.gid.to_le_bytes());
        out.extend_from_slice(&self.mtime.seconds.to_le_bytes());
        out.extend_from_slice(&self.mtime.nanoseconds.to_le_bytes());
        out.extend_from_slice(&self.nlink.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
    }
}

/// One name in a directory block.
pub(crate) struct Dirent<'a> {
    pub(crate) nid: u64,
    pub(crate) kind: FileType,
    pub(crate) name: &'a [u8],
}

/// Encodes one directory block: all entries, then all names. The caller has checked their total size.
pub(crate) fn encode_dirents(entries: &[Dirent<'_>], out: &mut Vec<u8>) {
    let mut name_offset = entries.len() * DIRENT_BYTES;
    for entry in entries {
        out.extend_from_slice(&entry.nid.to_le_bytes());
        let offset = u16::try_from(name_offset).expect("a block is 4096 bytes");
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&[entry.kind.dirent(), 0]);
        name_offset += entry.name.len();
    }
    for entry in entries {
        out.extend_from_slice(entry.name);
    }
}

/// Computes EROFS's CRC-32C: seed all ones, and no inversion at the end (`erofs_superblock_csum_verify`).
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        // RFC 3720's check value for "123456789" is 0xe3069283, after the inversion left out by EROFS.
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_inode_is_64_bytes() {
        let inode = Inode {
            layout: LAYOUT_INLINE,
            xattr_icount: 0,
            mode: FileType::Symlink.mode() | 0o777,
            size: 1,
            union: 0,
            number: 1,
            uid: 0,
            gid: 0,
            mtime: Timestamp::default(),
            nlink: 1,
        };
        let mut bytes = Vec::new();
        inode.encode(&mut bytes);
        assert_eq!(bytes.len() as u64, INODE_BYTES);
        assert_eq!(bytes[0], 0b101);
    }
}
