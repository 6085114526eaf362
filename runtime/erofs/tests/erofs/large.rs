//! A file of more than 4 GiB, mounted by the kernel. Holes stand for its content, so it takes no room.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::kernel::{Mount, fsck};
use runtime_erofs::{Attributes, Entry, EntryKind, Extent, Tree, place_blobs, write_metadata};

const LENGTH: u64 = (5 << 30) + 3;

#[test]
fn a_file_of_more_than_4_gib_is_whole() {
    let mut tree = Tree::new();
    let file = |path: &str, offset, length| Entry {
        path: path.as_bytes().to_vec(),
        attributes: Attributes::default(),
        kind: EntryKind::File(Extent { offset, length }),
    };
    tree.apply_layer(0, [file("large", 0, LENGTH), file("next", 5 << 30, 3)]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut out = File::create(&image).unwrap();
    let metadata = write_metadata(&tree, [0; 16], &[LENGTH], &mut out).unwrap();
    assert_eq!(metadata, image.metadata().unwrap().len());
    let (begins, end) = place_blobs(metadata, &[LENGTH]);
    out.set_len(end).unwrap();
    out.write_all_at(b"end", begins[0] + LENGTH - 3).unwrap();
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
