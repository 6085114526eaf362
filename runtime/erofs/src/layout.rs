//! Plans the position of everything in the image. Owns positions; never writes a byte.
//!
//! ```text
//! block 0      superblock
//! block 1 …    inodes, each with its attributes and, if they fit, a directory's or link's last bytes
//!              directory blocks and long link targets
//! next 2 MiB   blob 0: contents of regular files, each at a block boundary
//! next 2 MiB   blob 1 …
//! ```
//! The blobs are separate files. Here they only get positions: inodes name blocks of the complete image.
//! Nodes are taken breadth first, and each directory's names in order. So the inodes of one directory are
//! neighbours, and the order depends only on the tree.

use std::collections::VecDeque;

use crate::data::Extent;
use crate::error::WriteError;
use crate::format::{BLOCK_SIZE, DIRENT_BYTES, FileType, INODE_BYTES, SLOT_BYTES};
use crate::tree::{Content, NodeId, ROOT, Tree};
use crate::xattr;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Alignment in bytes of blobs, and of anything after a file system: a huge page, mapped by a guest with one
/// entry.
pub const BLOB_ALIGNMENT: u64 = 2 << 20;

/// Returns the start of each blob after metadata of `metadata_bytes`, and the end of the last one, in bytes.
/// A blob takes its bytes rounded up to a multiple of [`BLOB_ALIGNMENT`]. An empty one takes none. Sums
/// beyond 64 bits saturate.
pub fn place_blobs(metadata_bytes: u64, blobs: &[u64]) -> (Vec<u64>, u64) {
    let padded = |bytes: u64| bytes.checked_next_multiple_of(BLOB_ALIGNMENT).unwrap_or(u64::MAX - BLOCK + 1);
    let mut next = padded(metadata_bytes);
    let begin = |bytes: &u64| {
        let begin = next;
        next = begin.saturating_add(padded(*bytes));
        begin
    };
    let begins = blobs.iter().map(begin).collect();
    (begins, next)
}

/// The place of one node.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) node: NodeId,
    /// Byte position of the inode.
    pub(crate) position: u64,
    pub(crate) nlink: u32,
    /// Bytes of attributes after the inode.
    pub(crate) xattr_bytes: u64,
    /// `i_size`.
    pub(crate) size: u64,
    /// Bytes after the inode and its attributes.
    pub(crate) inline: u64,
    /// First block of the data not inline; 0 without any.
    pub(crate) block: u32,
    /// A directory's parent; unused for other nodes.
    pub(crate) parent: NodeId,
}

/// The places of all nodes and sections.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<Placed>,
    /// Index into `nodes`, by node.
    pub(crate) index: Vec<Option<usize>>,
    /// First block after the inodes.
    pub(crate) inode_end: u64,
    /// First block after all metadata.
    pub(crate) metadata_end: u64,
    /// Total number of blocks, including blobs.
    pub(crate) blocks: u32,
}

impl Layout {
    /// Places the nodes of `tree`, and blobs of these sizes.
    pub(crate) fn plan(tree: &Tree, blobs: &[u64]) -> Result<Layout, WriteError> {
        let (mut nodes, index) = collect(tree);
        let inode_end = place_inodes(tree, &mut nodes);
        let metadata_end = place_metadata(tree, &mut nodes, inode_end)?;
        let (begins, end) = place_blobs(metadata_end * BLOCK, blobs);
        // Without contents nothing follows the metadata.
        let end = if blobs.iter().all(|bytes| *bytes == 0) { metadata_end } else { end / BLOCK };
        let blocks = u32::try_from(end).map_err(|_| WriteError::TooLarge)?;
        for placed in &mut nodes {
            if let Content::File { blob, extent } = tree.nodes[placed.node].content {
                placed.block = content_block(blob, extent, &begins, blobs)?;
            }
        }
        Ok(Layout { nodes, index, inode_end, metadata_end, blocks })
    }

    /// Returns the nid of a placed node.
    pub(crate) fn nid(&self, node: NodeId) -> u64 {
        self.index[node].map_or(0, |at| self.nodes[at].position / SLOT_BYTES)
    }
}

impl Content {
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Content::Directory(_) => FileType::Directory,
            Content::File { .. } => FileType::Regular,
            Content::Symlink(_) => FileType::Symlink,
            Content::CharDevice(_) => FileType::CharDevice,
            Content::BlockDevice(_) => FileType::BlockDevice,
            Content::Fifo => FileType::Fifo,
        }
    }
}

/// Collects all reachable nodes, breadth first, with their number of names.
fn collect(tree: &Tree) -> (Vec<Placed>, Vec<Option<usize>>) {
    let mut index = vec![None; tree.nodes.len()];
    let placed = |node, parent| Placed {
        node,
        position: 0,
        nlink: 1,
        xattr_bytes: xattr::encoded_size(&tree.nodes[node].attributes.xattrs) as u64,
        size: size(&tree.nodes[node].content),
        inline: 0,
        block: 0,
        parent,
    };
    let mut nodes = vec![placed(ROOT, ROOT)];
    index[ROOT] = Some(0);
    let mut todo = VecDeque::from([ROOT]);
    while let Some(directory) = todo.pop_front() {
        let Some(entries) = tree.entries(directory) else { continue };
        // One for "." and one for the parent's name of it. The root's ".." is its own.
        let mut links = 2;
        for link in entries.values() {
            let is_directory = tree.entries(link.node).is_some();
            if is_directory {
                links += 1;
                todo.push_back(link.node);
            }
            match index[link.node] {
                Some(at) => {
                    let other: &mut Placed = &mut nodes[at];
                    other.nlink += 1;
                }
                None => {
                    index[link.node] = Some(nodes.len());
                    nodes.push(placed(link.node, directory));
                }
            }
        }
        if let Some(at) = index[directory] {
            nodes[at].nlink = links;
        }
    }
    (nodes, index)
}

/// Returns `i_size`. For a directory, these are its full blocks and the used part of the last.
fn size(content: &Content) -> u64 {
    match content {
        Content::File { extent, .. } => extent.length,
        Content::Symlink(target) => target.len() as u64,
        Content::Directory(entries) => {
            let blocks = split_blocks(directory_names(entries.keys().map(Vec::as_slice)).map(<[u8]>::len));
            let last: usize = blocks.last().map_or(0, |block| block.bytes);
            (blocks.len() as u64 - 1) * BLOCK + last as u64
        }
        _ => 0,
    }
}

/// A directory's names in on-disk order: bytewise, with "." and ".." among the others.
pub(crate) fn directory_names<'a>(
    names: impl Iterator<Item = &'a [u8]> + Clone,
) -> impl Iterator<Item = &'a [u8]> {
    const DOTS: [&[u8]; 2] = [b".", b".."];
    let before = names.clone().filter(|name| *name < DOTS[0]);
    let between = names.clone().filter(|name| *name > DOTS[0] && *name < DOTS[1]);
    let after = names.filter(|name| *name > DOTS[1]);
    before.chain([DOTS[0]]).chain(between).chain([DOTS[1]]).chain(after)
}

/// One directory block: its number of names, and its used bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectoryBlock {
    pub(crate) names: usize,
    pub(crate) bytes: usize,
}

/// Fills blocks with names of the given lengths, in order. There is always at least one name.
pub(crate) fn split_blocks(lengths: impl Iterator<Item = usize>) -> Vec<DirectoryBlock> {
    let mut blocks = vec![DirectoryBlock { names: 0, bytes: 0 }];
    for length in lengths {
        let bytes = DIRENT_BYTES + length;
        match blocks.last_mut() {
            Some(block) if block.bytes + bytes <= BLOCK_SIZE as usize => {
                block.names += 1;
                block.bytes += bytes;
            }
            _ => blocks.push(DirectoryBlock { names: 1, bytes }),
        }
    }
    blocks
}

/// Gives every inode its position and decides on inline data. Returns the first free block.
///
/// Inline data may not cross a block (`erofs_map_blocks_flatmode`). The inode, its attributes and the inline
/// bytes go into one block, or nothing is inline. Regular files are never inline, because DAX needs whole
/// pages.
fn place_inodes(tree: &Tree, nodes: &mut [Placed]) -> u64 {
    let mut position = BLOCK;
    for placed in nodes {
        let own = INODE_BYTES + placed.xattr_bytes;
        let inline = match tree.nodes[placed.node].content {
            Content::Directory(_) | Content::Symlink(_) => placed.size % BLOCK,
            _ => 0,
        };
        placed.inline = if own + inline <= BLOCK { inline } else { 0 };
        let together = if placed.inline > 0 { own + placed.inline } else { INODE_BYTES };
        if position % BLOCK + together > BLOCK {
            position = position.next_multiple_of(BLOCK);
        }
        placed.position = position;
        position = (position + own + placed.inline).next_multiple_of(SLOT_BYTES);
    }
    position.div_ceil(BLOCK)
}

/// Gives blocks to data of directories and links not stored inline. Returns the next free block.
fn place_metadata(tree: &Tree, nodes: &mut [Placed], start: u64) -> Result<u64, WriteError> {
    let mut next = start;
    for placed in nodes {
        if matches!(tree.nodes[placed.node].content, Content::File { .. }) {
            continue;
        }
        let count = (placed.size - placed.inline).div_ceil(BLOCK);
        if count > 0 {
            placed.block = u32::try_from(next).map_err(|_| WriteError::TooLarge)?;
        }
        next = next.checked_add(count).ok_or(WriteError::TooLarge)?;
    }
    Ok(next)
}

/// Returns the first block of a file's content; 0 for an empty one. Extents come from layers' trees, and
/// those may be damaged.
fn content_block(blob: usize, extent: Extent, begins: &[u64], blobs: &[u64]) -> Result<u32, WriteError> {
    let Extent { offset, length } = extent;
    if length == 0 {
        return Ok(0);
    }
    let end = offset.checked_add(length).filter(|_| offset.is_multiple_of(BLOCK));
    match (begins.get(blob), blobs.get(blob), end) {
        (Some(begin), Some(bytes), Some(end)) if end <= *bytes => {
            u32::try_from((begin + offset) / BLOCK).map_err(|_| WriteError::TooLarge)
        }
        _ => Err(WriteError::Extent { blob, offset, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_sort_before_a_dot_come_before_it() {
        let names: [&[u8]; 4] = [b"!x", b"-", b".a", b"z"];
        let sorted: Vec<&[u8]> = directory_names(names.iter().copied()).collect();
        assert_eq!(sorted, [&b"!x"[..], b"-", b".", b"..", b".a", b"z"]);
        let mut again = sorted.clone();
        again.sort_unstable();
        assert_eq!(sorted, again);
    }

    #[test]
    fn a_name_that_sorts_between_the_dots_stays_between_them() {
        let names: [&[u8]; 1] = [b".\x01"];
        let sorted: Vec<&[u8]> = directory_names(names.iter().copied()).collect();
        assert_eq!(sorted, [&b"."[..], b".\x01", b".."]);
    }

    #[test]
    fn an_image_of_more_than_2_to_32_blocks_is_refused() {
        let tree = one_file(0, 0, 16 << 40);
        assert!(matches!(Layout::plan(&tree, &[16 << 40]), Err(WriteError::TooLarge)));
        assert!(matches!(Layout::plan(&tree, &[16 << 40, u64::MAX, 5]), Err(WriteError::TooLarge)));
        let tree = one_file(0, 0, 15 << 40);
        assert_eq!(Layout::plan(&tree, &[15 << 40]).unwrap().blocks, (15 << 28) + 512);
    }

    fn one_file(blob: usize, offset: u64, length: u64) -> Tree {
        use crate::{Attributes, Entry, EntryKind};
        let mut tree = Tree::new();
        let kind = EntryKind::File(Extent { offset, length });
        tree.apply_layer(blob, [Entry { path: b"a".to_vec(), attributes: Attributes::default(), kind }])
            .unwrap();
        tree
    }

    #[test]
    fn a_content_outside_its_blob_or_a_block_is_refused() {
        for (blob, offset, length) in
            [(1, 0, 1), (0, 4096, 1), (0, 0, 4097), (0, 1, 1), (0, 1 << 63, u64::MAX), (usize::MAX, 0, 1)]
        {
            let refused = Layout::plan(&one_file(blob, offset, length), &[4096]);
            assert!(matches!(refused, Err(WriteError::Extent { .. })), "{blob} {offset} {length}");
        }
        assert!(Layout::plan(&one_file(7, 3, 0), &[]).is_ok(), "an empty file has no content");
    }

    #[test]
    fn blobs_begin_at_multiples_of_2_mib_and_empty_ones_take_no_place() {
        const MIB: u64 = 1 << 20;
        assert_eq!(
            place_blobs(8192, &[1, 0, 2 * MIB, 5 * MIB]),
            (vec![2 * MIB, 4 * MIB, 4 * MIB, 6 * MIB], 12 * MIB)
        );
        assert_eq!(place_blobs(4096, &[]), (Vec::new(), 2 * MIB));
        let layout = Layout::plan(&one_file(1, 4096, 1), &[1, 8192]).unwrap();
        assert_eq!((layout.nodes[1].block, layout.blocks), (1024 + 1, 1536));
    }

    #[test]
    fn a_full_block_starts_the_next() {
        // 16 names of 244 bytes take 16 * 256 = 4096 bytes.
        let blocks = split_blocks(std::iter::repeat_n(244, 17));
        assert_eq!(
            blocks,
            [DirectoryBlock { names: 16, bytes: 4096 }, DirectoryBlock { names: 1, bytes: 256 }]
        );
    }
}
