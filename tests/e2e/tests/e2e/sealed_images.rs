//! Altered files of the image store, on a disk with fs-verity: no guest runs on them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::Layer;

const DISK_MIB: u64 = 256;
/// The content of the file to alter below the file system: found nowhere else on the disk.
const MARKER: &str = "podvisor-marker-of-a-sealed-file!";
const BLOCK: usize = 4096;

/// Pushes busybox with a block of markers on top, and pulls it.
async fn marked(host: &Host, tag: &str) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(Layer::builder().file("mark", 0o644, marks(MARKER)).build());
    host.registry.push_image("e2e/sealed", tag, layers, config).await.unwrap();
    host.client().pull(&host.image(&format!("e2e/sealed:{tag}"))).await.unwrap()
}

fn marks(marker: &str) -> String {
    marker.repeat(BLOCK / marker.len())
}

/// The files of the daemon's image directory with this ending.
fn stored(host: &Host, directory: &str, ending: &str) -> Vec<PathBuf> {
    let at = host.dir().join("state/images").join(directory);
    let files = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// Replaces a file by a copy with one byte altered in the middle.
fn swap(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used / 2] ^= 1;
    let copy = path.with_extension("copy");
    fs::write(&copy, bytes).unwrap();
    fs::rename(copy, path).unwrap();
}

async fn refused(client: &mut Client, host: &Host, image: &str) -> String {
    let pod = client.run_pod(&spec::pod("refused", host.dir())).await.unwrap();
    let error = client.create(&pod, spec::container("main", image, &["true"])).await.unwrap_err();
    client.remove_pod(&pod).await.unwrap();
    error.message().to_owned()
}

async fn prints_mark(client: &mut Client, host: &Host, image: &str) {
    let pod = client.run_pod(&spec::pod("whole", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", image, &["sleep", "100000"])).await.unwrap();
    assert_eq!(client.sh(&container, "cat /mark").await.unwrap(), marks(MARKER));
    client.remove_pod(&pod).await.unwrap();
}

#[tokio::test]
async fn a_stored_file_is_sealed_and_one_that_was_swapped_is_refused_and_pulled_again() {
    let Some(mut host) = Host::start_on_disk_with_verity(DISK_MIB).await else { return };
    let image = marked(&host, "swapped").await;
    let mut client = host.client();
    prints_mark(&mut client, &host, &image).await;
    let own = stored(&host, "images", ".erofs");
    let data = stored(&host, "layers", ".data");
    let trees = stored(&host, "layers", ".tree");
    assert_eq!((own.len(), data.len(), trees.len()), (1, 2, 2));
    for path in own.iter().chain(&data).chain(&trees) {
        let error = File::options().write(true).open(path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EPERM), "{path:?} is sealed");
    }
    for path in [&own[0], &data[0]] {
        swap(path);
        let text = refused(&mut client, &host, &image).await;
        assert!(text.contains("it is not the stored file") && text.contains("fs-verity"), "{text}");
        assert!(host.daemon.log().contains("it is not the stored file"));
        host.daemon.kill_and_restart().await.unwrap();
        client = host.client();
        let listed = client.images.list_images(v1::ListImagesRequest::default()).await.unwrap();
        assert!(listed.into_inner().images.is_empty(), "an image with another file is none");
        assert_eq!(marked(&host, "swapped").await, image);
        prints_mark(&mut client, &host, &image).await;
    }
    host.stop().await.unwrap();
}

/// Alters the markers on the disk itself, behind the file system's back; returns how many there were.
fn alter_blocks(disk: &Path) -> usize {
    let file = File::options().read(true).write(true).open(disk).unwrap();
    let (mut block, mut count) = (vec![0; BLOCK], 0);
    let mut reader = &file;
    for offset in (0..).step_by(BLOCK) {
        if reader.read_exact(&mut block).is_err() {
            break;
        }
        if block.starts_with(MARKER.as_bytes()) {
            file.write_all_at(b"P", offset).unwrap();
            count += 1;
        }
    }
    file.sync_all().unwrap();
    count
}

#[tokio::test]
async fn bytes_that_were_altered_below_the_file_system_are_seen_by_no_guest() {
    let Some(host) = Host::start_on_disk_with_verity(DISK_MIB).await else { return };
    let image = marked(&host, "altered").await;
    let mut client = host.client();
    let data = stored(&host, "layers", ".data");
    for path in &data {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        // Pages in memory have been checked already.
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }
    assert!(alter_blocks(&host.disk_file()) > 0, "the file is on the disk as it is");
    let unreadable = data.iter().filter(|path| fs::read(path).is_err()).count();
    assert_eq!(unreadable, 1, "the kernel gives nobody the block");
    let pod = client.run_pod(&spec::pod("altered", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "100000"])).await.unwrap();
    let seen = client.exec(&container, &["cat", "/mark"], 60).await;
    let printed = seen.map(|answer| answer.stdout).unwrap_or_default();
    assert_eq!(String::from_utf8_lossy(&printed), "");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
