//! A node's images in a temporary directory, and ways to look at them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use runtime_image::{ContentError, Image, ImageError, Images, Limits, RegistryConfig};
use tempfile::TempDir;
use tests_registry::Layer;

/// A node's image directory.
pub(crate) struct Node {
    pub(crate) images: Images,
    pub(crate) directory: TempDir,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node::with_limits(limits())
    }

    pub(crate) fn with_limits(limits: Limits) -> Node {
        Node::with_config(RegistryConfig { limits, ..RegistryConfig::default() })
    }

    pub(crate) fn with_config(config: RegistryConfig) -> Node {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(directory.path(), config).unwrap();
        images.users_are_known().unwrap();
        Node { images, directory }
    }

    pub(crate) async fn pull(&self, reference: &str) -> Result<Image, ImageError> {
        self.images.pull(reference, None).await
    }

    pub(crate) fn blob(&self, digest: &str, suffix: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        self.directory.path().join("blobs/sha256").join(format!("{hex}{suffix}"))
    }

    /// The data file of a layer.
    pub(crate) fn data(&self, layer: &Layer) -> PathBuf {
        let hex = layer.diff_id.trim_start_matches("sha256:");
        self.directory.path().join("layers").join(format!("{hex}.data"))
    }

    /// How many entries a directory of the image directory has.
    pub(crate) fn count(&self, directory: &str) -> usize {
        fs::read_dir(self.directory.path().join(directory)).unwrap().count()
    }

    /// The files of an image, one after the other in one file, as a guest has them.
    pub(crate) fn concatenated(&self, image: &Image) -> tempfile::NamedTempFile {
        let mut whole = tempfile::NamedTempFile::new().unwrap();
        let mut end = 0;
        for mut part in self.images.open_image(&image.id).unwrap().parts {
            assert_eq!(part.offset, end, "side by side");
            end += part.length;
            std::io::copy(&mut part.file, &mut whole).unwrap();
        }
        assert_eq!((whole.as_file().metadata().unwrap().len(), end), (image.range_bytes, image.range_bytes));
        whole
    }

    /// Asserts that a failed pull left nothing but blobs and whole layers, and that no thread works for it.
    pub(crate) fn assert_no_leftovers(&self) {
        let temporary = self.directory.path().join("tmp");
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut open = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        assert_eq!(open.find(|path| path.starts_with(&temporary)), None);
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.directory.path().join("images")).unwrap().count(), 0);
        assert!(self.images.list().is_empty());
    }
}

/// The usual limits, with delays short enough for a test.
pub(crate) fn limits() -> Limits {
    Limits { retry_wait: Duration::from_millis(5), ..Limits::default() }
}

/// Inspects an image through the kernel, if possible.
pub(crate) fn with_mount(node: &Node, image: &Image, look: impl FnOnce(&Path)) {
    let whole = node.concatenated(image);
    match Command::new("fsck.erofs").arg(whole.path()).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("skipped: fsck.erofs is not installed"),
    }
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: looking at the image needs root and loop devices");
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let output = Command::new("mount")
        .args(["-t", "erofs", "-o", "loop,ro"])
        .arg(whole.path())
        .arg(at.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
    let mount = Mount(at.path());
    look(mount.0);
}

/// A loop mount, unmounted when dropped.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-d").arg(self.0).status();
        assert!(std::thread::panicking() || status.is_ok_and(|status| status.success()), "umount failed");
    }
}

pub(crate) fn one_file(content: &str) -> Vec<Layer> {
    vec![Layer::builder().file("file", 0o644, content).build()]
}

/// The wrong part of the image, and its problem.
pub(crate) fn content(result: Result<Image, ImageError>) -> (String, ContentError) {
    match result {
        Err(ImageError::Content { what, error }) => (what, error),
        other => panic!("expected wrong content, got {other:?}"),
    }
}
