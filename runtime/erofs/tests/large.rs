//! A file of more than 4 GiB, mounted by the kernel. Holes stand for its content, so it takes no room.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod kernel;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use kernel::{Mount, fsck};
use runtime_erofs::{Attributes, BlobSource, Entry, EntryKind, Extent, Tree, write_image};

const LENGTH: u64 = (5 << 30) + 3;

/// Zeros, and three bytes at the end.
struct Zeros;

impl BlobSource for Zeros {
    fn read_at(&mut self, _blob: u32, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset + buffer.len() as u64 == LENGTH {
            buffer.copy_from_slice(b"end");
        } else {
            buffer.fill(0);
        }
        Ok(())
    }
}

/// Leaves a hole for every large piece: here those are zeros.
struct Holes(File);

impl Write for Holes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > 65536 {
            self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
            return Ok(bytes.len());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_file_of_more_than_4_gib_is_whole() {
    let mut tree = Tree::new();
    let file = |path: &str, offset, length| Entry {
        path: path.as_bytes().to_vec(),
        attributes: Attributes::default(),
        kind: EntryKind::File(Extent { blob: 0, offset, length }),
    };
    tree.apply_layer([file("large", 0, LENGTH), file("next", LENGTH - 3, 3)]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut out = Holes(File::create(&image).unwrap());
    let written = write_image(&tree, [0; 16], &mut Zeros, &mut out).unwrap();
    assert_eq!(written, image.metadata().unwrap().len());
    fsck(&image);
    if let Some(mount) = Mount::new(&image, &directory.path().join("mount")) {
        let large = File::open(mount.0.join("large")).unwrap();
        assert_eq!(large.metadata().unwrap().len(), LENGTH);
        let mut end = [0; 4];
        large.read_exact_at(&mut end, LENGTH - 4).unwrap();
        assert_eq!(&end, b"\0end");
        assert_eq!(std::fs::read(mount.0.join("next")).unwrap(), b"end");
        drop(large);
    }
}
