//! Writes a tree as the metadata of one image. Owns the order of writing, front to back; never sees a blob.

use std::io::{self, Write};

use crate::error::WriteError;
use crate::format::{
    BLOCK_SIZE, Dirent, FileType, Inode, LAYOUT_INLINE, LAYOUT_PLAIN, Superblock, encode_dirents,
};
use crate::layout::{Layout, Placed, directory_names, split_blocks};
use crate::tree::{Content, NodeId, ROOT, Tree};
use crate::xattr;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Writes the image's metadata from front to back and returns its length in bytes, a multiple of 4 KiB. `out`
/// need not seek. `uuid` is the volume's identity. `blobs` lists the size of each blob in bytes, by number.
/// The image is complete once they are at the positions given by [`place_blobs`](crate::place_blobs) for the
/// returned length.
///
/// # Errors
/// [`WriteError`]: the output, a content outside its blob, or an image of more than 16 TiB.
pub fn write_metadata(
    tree: &Tree,
    uuid: [u8; 16],
    blobs: &[u64],
    out: &mut impl Write,
) -> Result<u64, WriteError> {
    let layout = Layout::plan(tree, blobs)?;
    let mut image = Image { tree, layout: &layout, out, position: 0 };
    image.superblock(uuid).map_err(WriteError::Output)?;
    image.inodes().map_err(WriteError::Output)?;
    image.metadata_blocks().map_err(WriteError::Output)?;
    image.out.flush().map_err(WriteError::Output)?;
    Ok(layout.metadata_end * BLOCK)
}

struct Image<'a, W> {
    tree: &'a Tree,
    layout: &'a Layout,
    out: &'a mut W,
    position: u64,
}

impl<W: Write> Image<'_, W> {
    fn superblock(&mut self, uuid: [u8; 16]) -> io::Result<()> {
        let root_nid = u16::try_from(self.layout.nid(ROOT)).expect("the root is the first inode, in block 1");
        let superblock =
            Superblock { root_nid, inodes: self.layout.nodes.len() as u64, blocks: self.layout.blocks, uuid };
        self.put(&superblock.encode())
    }

    fn inodes(&mut self) -> io::Result<()> {
        let layout = self.layout;
        let mut bytes = Vec::new();
        for (number, placed) in layout.nodes.iter().enumerate() {
            self.pad_to(placed.position)?;
            bytes.clear();
            self.inode(number, placed, &mut bytes);
            self.put(&bytes)?;
        }
        self.pad_to(layout.inode_end * BLOCK)
    }

    fn inode(&self, number: usize, placed: &Placed, out: &mut Vec<u8>) {
        let node = &self.tree.nodes[placed.node];
        let attributes = &node.attributes;
        let union = match &node.content {
            Content::CharDevice(device) | Content::BlockDevice(device) => device.encode(),
            _ => placed.block,
        };
        let inode = Inode {
            layout: if placed.inline > 0 { LAYOUT_INLINE } else { LAYOUT_PLAIN },
            xattr_icount: xattr::icount(placed.xattr_bytes as usize),
            mode: node.content.file_type().mode() | (attributes.mode & 0o7777),
            size: placed.size,
            union,
            number: u32::try_from(number + 1).unwrap_or(u32::MAX),
            uid: attributes.uid,
            gid: attributes.gid,
            mtime: attributes.mtime,
            nlink: placed.nlink,
        };
        inode.encode(out);
        xattr::encode(&attributes.xattrs, out);
        if placed.inline > 0 {
            let bytes = self.metadata(placed);
            out.extend_from_slice(&bytes[bytes.len() - placed.inline as usize..]);
        }
    }

    /// Writes the directory blocks and link targets not stored inline.
    fn metadata_blocks(&mut self) -> io::Result<()> {
        let layout = self.layout;
        for placed in &layout.nodes {
            if placed.size == placed.inline
                || matches!(self.tree.nodes[placed.node].content, Content::File { .. })
            {
                continue;
            }
            let bytes = self.metadata(placed);
            self.pad_to(u64::from(placed.block) * BLOCK)?;
            self.put(&bytes[..bytes.len() - placed.inline as usize])?;
        }
        self.pad_to(layout.metadata_end * BLOCK)
    }

    /// Returns the whole data of a directory or link, `i_size` bytes. Empty for others.
    fn metadata(&self, placed: &Placed) -> Vec<u8> {
        match &self.tree.nodes[placed.node].content {
            Content::Symlink(target) => target.clone(),
            Content::Directory(_) => self.directory(placed.node, placed.parent),
            _ => Vec::new(),
        }
    }

    fn directory(&self, node: NodeId, parent: NodeId) -> Vec<u8> {
        let Some(entries) = self.tree.entries(node) else { return Vec::new() };
        let names = directory_names(entries.keys().map(Vec::as_slice));
        let dirents: Vec<Dirent<'_>> = names
            .map(|name| match entries.get(name) {
                Some(link) => self.dirent(name, link.node),
                None if name == b"." => self.dirent(name, node),
                None => self.dirent(name, parent),
            })
            .collect();
        let mut bytes = Vec::new();
        let mut rest = dirents.as_slice();
        for block in split_blocks(dirents.iter().map(|dirent| dirent.name.len())) {
            bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE as usize), 0);
            let (now, later) = rest.split_at(block.names);
            encode_dirents(now, &mut bytes);
            rest = later;
        }
        bytes
    }

    fn dirent<'n>(&self, name: &'n [u8], node: NodeId) -> Dirent<'n> {
        let kind: FileType = self.tree.nodes[node].content.file_type();
        Dirent { nid: self.layout.nid(node), kind, name }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, position: u64) -> io::Result<()> {
        const ZEROS: [u8; BLOCK_SIZE as usize] = [0; BLOCK_SIZE as usize];
        while self.position < position {
            let count = (position - self.position).min(BLOCK) as usize;
            self.put(&ZEROS[..count])?;
        }
        debug_assert_eq!(self.position, position, "the layout leaves no overlap");
        Ok(())
    }
}
