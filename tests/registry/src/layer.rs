//! Layers from a test's description. Owns tar and compression; never a registry.

use std::io::{self, Write};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::digest::digest_of;

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Plain tar.
    None,
    /// gzip, as in most images.
    Gzip,
    /// zstd.
    Zstd,
}

/// A layer as a registry keeps it.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The media type, as the manifest has it.
    pub media_type: String,
    /// The compressed archive.
    pub bytes: Vec<u8>,
    /// Digest of the archive before compression.
    pub diff_id: String,
}

impl Layer {
    /// Starts an empty layer: gzip, owned by root, at the epoch.
    pub fn builder() -> LayerBuilder {
        LayerBuilder {
            tar: Builder::new(Vec::new()),
            owner: (0, 0),
            mtime: 0,
            records: Vec::new(),
            compression: Compression::Gzip,
        }
    }

    /// A layer of an existing archive, however broken.
    pub fn from_tar(tar: &[u8], compression: Compression) -> Layer {
        let (bytes, suffix) = match compression {
            Compression::None => (tar.to_vec(), ""),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(tar).expect("memory takes all");
                (encoder.finish().expect("memory takes all"), "+gzip")
            }
            Compression::Zstd => (zstd::encode_all(tar, 1).expect("memory takes all"), "+zstd"),
        };
        let media_type = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
        Layer { media_type, bytes, diff_id: digest_of(tar) }
    }

    /// Unpacks a layer of gzip into a directory, as this process's user.
    ///
    /// # Errors
    /// When it is no archive of gzip, or cannot be written.
    pub fn unpack(&self, into: &Path) -> io::Result<()> {
        tar::Archive::new(flate2::read::GzDecoder::new(&self.bytes[..])).unpack(into)
    }

    /// Digest of the compressed bytes.
    pub fn digest(&self) -> String {
        digest_of(&self.bytes)
    }
}

/// Collects entries, in the order given.
pub struct LayerBuilder {
    tar: Builder<Vec<u8>>,
    owner: (u64, u64),
    mtime: u64,
    records: Vec<(String, Vec<u8>)>,
    compression: Compression,
}

impl std::fmt::Debug for LayerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerBuilder").finish_non_exhaustive()
    }
}

impl LayerBuilder {
    /// Owner of the entries from here on.
    pub fn owner(mut self, uid: u64, gid: u64) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Modification time of the entries from here on, in seconds.
    pub fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    /// An extended attribute of the next entry.
    pub fn xattr(self, name: &str, value: &[u8]) -> Self {
        self.record(&format!("SCHILY.xattr.{name}"), value)
    }

    /// A record of the next entry's extended header.
    pub fn record(mut self, key: &str, value: &[u8]) -> Self {
        self.records.push((key.to_owned(), value.to_vec()));
        self
    }

    /// A regular file.
    pub fn file(self, path: &str, mode: u32, content: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, path, mode, content.as_ref(), None)
    }

    /// A directory.
    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(EntryType::Directory, path, mode, b"", None)
    }

    /// A symbolic link.
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, 0o777, target.as_bytes(), None)
    }

    /// A hard link to a path of this layer or one below. Archivers write the target's mode, and some
    /// unpackers set it.
    pub fn hard_link(self, path: &str, mode: u32, target: &str) -> Self {
        self.entry(EntryType::Link, path, mode, target.as_bytes(), None)
    }

    /// A character device.
    pub fn char_device(self, path: &str, mode: u32, major: u32, minor: u32) -> Self {
        self.entry(EntryType::Char, path, mode, b"", Some((major, minor)))
    }

    /// A block device.
    pub fn block_device(self, path: &str, mode: u32, major: u32, minor: u32) -> Self {
        self.entry(EntryType::Block, path, mode, b"", Some((major, minor)))
    }

    /// A named pipe.
    pub fn fifo(self, path: &str, mode: u32) -> Self {
        self.entry(EntryType::Fifo, path, mode, b"", None)
    }

    /// Removes `path` of the layers below.
    pub fn whiteout(self, path: &str) -> Self {
        let (parent, name) = path.rsplit_once('/').map_or(("", path), |(parent, name)| (parent, name));
        let slash = if parent.is_empty() { "" } else { "/" };
        self.file(&format!("{parent}{slash}.wh.{name}"), 0o644, b"")
    }

    /// Removes the lower layers' entries of a directory.
    pub fn opaque(self, directory: &str) -> Self {
        self.file(&format!("{directory}/.wh..wh..opq"), 0o644, b"")
    }

    /// Sets how the layer is compressed.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The archive, uncompressed.
    pub fn into_tar(self) -> Vec<u8> {
        self.tar.into_inner().expect("memory takes all")
    }

    /// The finished layer.
    pub fn build(self) -> Layer {
        let compression = self.compression;
        Layer::from_tar(&self.into_tar(), compression)
    }

    fn entry(
        mut self,
        kind: EntryType,
        path: &str,
        mode: u32,
        content: &[u8],
        device: Option<(u32, u32)>,
    ) -> Self {
        let records = std::mem::take(&mut self.records);
        let borrowed = records.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        self.tar.append_pax_extensions(borrowed).expect("memory takes all");
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(self.owner.0);
        header.set_gid(self.owner.1);
        header.set_mtime(self.mtime);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        if let Some((major, minor)) = device {
            header.set_device_major(major).expect("a GNU header has devices");
            header.set_device_minor(minor).expect("a GNU header has devices");
        }
        if is_link {
            let target = std::str::from_utf8(content).expect("targets are text");
            self.tar.append_link(&mut header, path, target).expect("memory takes all");
        } else {
            self.tar.append_data(&mut header, path, content).expect("memory takes all");
        }
        self
    }
}
