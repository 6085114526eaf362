//! Images of many files and of large ones, imported and mounted by the kernel.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::archives::{import, layout};
use crate::node::{Node, with_mount};
use tests_registry::Layer;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_hundred_thousand_files_is_one_file_system() {
    const DIRECTORIES: usize = 100;
    const FILES: usize = 1000;
    let mut layer = Layer::builder();
    for directory in 0..DIRECTORIES {
        layer = layer.dir(&format!("{directory}"), 0o755);
        for file in 0..FILES {
            let content = if file == 0 { format!("of {directory}") } else { String::new() };
            layer = layer.file(&format!("{directory}/{file}"), 0o644, content);
        }
    }
    let node = Node::new();
    let images =
        import(&node, &layout(&[layer.build()], Some("r.example/many:1")).tar(), None).await.unwrap();
    with_mount(&node, &images[0], |root| {
        for directory in 0..DIRECTORIES {
            let at = root.join(directory.to_string());
            assert_eq!(fs::read_dir(&at).unwrap().count(), FILES);
            assert_eq!(fs::read_to_string(at.join("0")).unwrap(), format!("of {directory}"));
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_of_more_than_4_gib_is_whole() {
    const SIZE: u64 = (4 << 30) + 5;
    // All of it is written to the disk, twice.
    if std::env::var_os("PODVISOR_IMAGE_SEEDS").is_none() {
        eprintln!("skipped: it takes 8 GiB of the disk; make soak does it");
        return;
    }
    let (size, map) = (SIZE.to_string(), format!("0,5,{},4", SIZE - 4));
    let layer = Layer::builder()
        .record("GNU.sparse.size", size.as_bytes())
        .record("GNU.sparse.map", map.as_bytes())
        .file("large", 0o644, "begin.end");
    let node = Node::new();
    let layers = [layer.file("next", 0o644, "next").build()];
    let images = import(&node, &layout(&layers, Some("r.example/large:1")).tar(), None).await.unwrap();
    with_mount(&node, &images[0], |root| {
        let large = File::open(root.join("large")).unwrap();
        assert_eq!(large.metadata().unwrap().len(), SIZE);
        for (offset, wanted) in [(0, b"begin\0"), (SIZE - 6, b"\0\0.end")] {
            let mut found = [0; 6];
            large.read_exact_at(&mut found, offset).unwrap();
            assert_eq!(&found, wanted, "at {offset}");
        }
        assert_eq!(fs::read(root.join("next")).unwrap(), b"next");
    });
}
