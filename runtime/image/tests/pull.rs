//! Images pulled from a real registry (`docker-registry` on loopback). Says so and passes where it is not installed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use runtime_image::{Credentials, Image, ImageError, Images, Limits, RegistryConfig, Wrong};
use serde_json::json;
use tempfile::TempDir;
use tests_registry::{Compression, Layer, PASSWORD, Registry, USERNAME, busybox_image, digest_of};

struct Node {
    images: Images,
    directory: TempDir,
}

impl Node {
    fn new() -> Node {
        Node::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Node {
        let directory = tempfile::tempdir().unwrap();
        let config = RegistryConfig { limits, ..RegistryConfig::default() };
        Node { images: Images::open(directory.path(), config).unwrap(), directory }
    }

    async fn pull(&self, reference: &str) -> Result<Image, ImageError> {
        self.images.pull(reference, None).await
    }

    fn blob(&self, digest: &str, suffix: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        self.directory.path().join("blobs/sha256").join(format!("{hex}{suffix}"))
    }

    /// Nothing of a pull that failed is left but blobs.
    fn assert_no_leftovers(&self) {
        assert_eq!(fs::read_dir(self.directory.path().join("tmp")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.directory.path().join("images")).unwrap().count(), 0);
        assert!(self.images.list().is_empty());
    }
}

/// Looks at an image through the kernel, where that is possible.
fn with_mount(node: &Node, image: &Image, look: impl FnOnce(&Path)) {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: looking at the image needs root and loop devices");
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let hex = image.id.trim_start_matches("sha256:");
    let file = node.directory.path().join("images").join(format!("{hex}.erofs"));
    let output = Command::new("mount")
        .args(["-t", "erofs", "-o", "loop,ro"])
        .arg(file)
        .arg(at.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(at.path())));
    assert!(Command::new("umount").arg("-d").arg(at.path()).status().unwrap().success());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn one_file(content: &str) -> Vec<Layer> {
    vec![Layer::builder().file("file", 0o644, content).build()]
}

/// What is wrong with the content, and what it is that is wrong.
fn content(result: Result<Image, ImageError>) -> (String, Wrong) {
    match result {
        Err(ImageError::Content { what, wrong }) => (what, wrong),
        other => panic!("expected wrong content, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_stacked_as_they_say() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let big: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    let lower = Layer::builder()
        .dir("etc", 0o755)
        .file("etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\n")
        .file("etc/gone", 0o644, "gone")
        .dir("cache", 0o755)
        .file("cache/old", 0o644, "old")
        .file("big", 0o600, &big)
        .symlink("link", "etc")
        .build();
    let middle = Layer::builder()
        .compression(Compression::Zstd)
        .whiteout("etc/gone")
        .opaque("cache")
        .file("cache/new", 0o644, "new")
        .hard_link("big-too", "big")
        .owner(1000, 100)
        .mtime(1_234_567_890)
        .xattr("user.colour", b"line\nbreak")
        .file("link/mine", 0o4755, "mine")
        .build();
    let upper = Layer::builder()
        .compression(Compression::None)
        .char_device("null", 0o666, 1, 3)
        .block_device("disk", 0o660, 259, 70000)
        .fifo("pipe", 0o600)
        .dir("etc", 0o711)
        .build();
    let config = json!({ "User": "1000:100", "Env": ["A=b"], "Entrypoint": ["/init"], "Cmd": ["x"], "WorkingDir": "/etc",
        "StopSignal": "SIGINT", "Labels": { "k": "v" }, "ExposedPorts": { "80/tcp": {} } });
    let digest = registry.push_image("t/stack", "1", vec![lower, middle, upper], config).await.unwrap();
    let image = node.pull(&registry.reference("t/stack", "1")).await.unwrap();

    assert_eq!(image.repo_tags, [registry.reference("t/stack", "1")]);
    assert_eq!(image.repo_digests, [registry.digest_reference("t/stack", &digest)]);
    assert_eq!((image.config.user.as_str(), image.config.working_dir.as_str()), ("1000:100", "/etc"));
    assert_eq!(
        (image.config.entrypoint.as_slice(), image.config.cmd.as_slice()),
        (&["/init".to_owned()][..], &["x".to_owned()][..])
    );
    assert_eq!(image.config.stop_signal.as_deref(), Some("SIGINT"));
    let length = node.images.open_erofs(&image).unwrap().metadata().unwrap().len();
    assert_eq!(length % (2 << 20), 0);
    assert!(image.size_bytes > 3_000_000 && image.size_bytes <= length);
    with_mount(&node, &image, |root| {
        let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["big", "big-too", "cache", "disk", "etc", "link", "null", "pipe"]);
        assert!(fs::read(root.join("big-too")).unwrap() == big);
        assert_eq!(fs::metadata(root.join("big")).unwrap().nlink(), 2);
        assert!(!root.join("etc/gone").exists() && !root.join("cache/old").exists());
        assert_eq!(fs::read_to_string(root.join("cache/new")).unwrap(), "new");
        assert_eq!(fs::metadata(root.join("etc")).unwrap().mode() & 0o7777, 0o711);
        let mine = fs::metadata(root.join("etc/mine")).unwrap();
        assert_eq!((mine.uid(), mine.gid(), mine.mode() & 0o7777), (1000, 100, 0o4755));
        assert_eq!(mine.mtime(), 1_234_567_890);
        assert_eq!(
            xattr::get(root.join("etc/mine"), "user.colour").unwrap().as_deref(),
            Some(&b"line\nbreak"[..])
        );
        let (null, disk) =
            (fs::metadata(root.join("null")).unwrap(), fs::metadata(root.join("disk")).unwrap());
        assert!(null.file_type().is_char_device() && disk.file_type().is_block_device());
        assert_eq!(null.rdev(), nix::sys::stat::makedev(1, 3));
        assert_eq!(disk.rdev(), nix::sys::stat::makedev(259, 70000));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn busybox_is_pulled_and_can_be_run() {
    if !Registry::is_installed() || !Path::new("/bin/busybox").exists() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let (layers, config) = busybox_image().unwrap();
    registry.push_image("demo/busybox", "latest", layers, config).await.unwrap();
    let image = node.pull(&format!("{}/demo/busybox", registry.addr)).await.unwrap();
    assert_eq!(image.repo_tags, [registry.reference("demo/busybox", "latest")]);
    assert_eq!(image.config.cmd, ["sh"]);
    with_mount(&node, &image, |root| {
        let output = Command::new("chroot").arg(root).args(["/bin/ls", "-d", "/tmp"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/tmp\n");
        assert_eq!(fs::metadata(root.join("tmp")).unwrap().mode() & 0o7777, 0o1777);
    });
    let usage = node.images.usage();
    assert!(usage.bytes >= image.size_bytes && usage.inodes > 6);
    assert_eq!(usage.mountpoint, node.directory.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_and_go_as_the_kubelet_expects() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let first = registry.push_image("t/names", "1", one_file("first"), json!({})).await.unwrap();
    registry.push_image("t/names", "2", one_file("first"), json!({})).await.unwrap();
    let (one, two) = (registry.reference("t/names", "1"), registry.reference("t/names", "2"));
    let by_digest = registry.digest_reference("t/names", &first);

    let image = node.pull(&by_digest).await.unwrap();
    assert_eq!((image.repo_tags.len(), image.repo_digests.as_slice()), (0, &[by_digest.clone()][..]));
    assert_eq!(node.pull(&one).await.unwrap().id, image.id);
    let image = node.pull(&two).await.unwrap();
    assert_eq!(image.repo_tags, [one.clone(), two.clone()]);
    assert_eq!(image.repo_digests, [by_digest.clone()]);
    for name in [&one, &two, &by_digest, &image.id, &image.id[7..].to_owned(), &image.id[7..20].to_owned()] {
        assert_eq!(node.images.find(name).as_ref(), Some(&image), "{name}");
    }

    registry.push_image("t/names", "1", one_file("second"), json!({})).await.unwrap();
    let newer = node.pull(&one).await.unwrap();
    assert_ne!(newer.id, image.id);
    assert_eq!(newer.repo_tags, [one.clone()]);
    assert_eq!(node.images.find(&image.id).unwrap().repo_tags, [two.clone()]);

    let reopened = Images::open(node.directory.path(), RegistryConfig::default()).unwrap();
    assert_eq!(reopened.list(), node.images.list());

    node.images.remove(&two).unwrap();
    node.images.remove(&two).unwrap();
    assert!(node.images.find(&by_digest).is_none());
    assert_eq!(node.images.list(), [newer.clone()]);
    assert!(matches!(node.images.open_erofs(&image), Err(ImageError::Unknown(id)) if id == image.id));
    node.images.remove(&newer.id).unwrap();
    assert_eq!(fs::read_dir(node.directory.path().join("blobs/sha256")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_image_can_be_opened_until_its_release() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    registry.push_image("t/lease", "1", one_file("x"), json!({})).await.unwrap();
    let image = node.pull(&registry.reference("t/lease", "1")).await.unwrap();
    let lease = node.images.lease(&image.id).unwrap();
    node.images.remove(&image.id).unwrap();
    assert!(node.images.list().is_empty());
    assert!(node.images.open_erofs(&image).is_ok());
    drop(lease);
    assert!(node.images.open_erofs(&image).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_gives_the_image_for_this_machine() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let ours = registry.push_image("t/index", "a", one_file("ours"), json!({})).await.unwrap();
    let other = registry.push_image("t/index", "b", one_file("other"), json!({})).await.unwrap();
    let index = registry.push_index("t/index", "all", &[("arm64", &other), ("amd64", &ours)]).await.unwrap();
    let image = node.pull(&registry.reference("t/index", "all")).await.unwrap();
    assert_eq!(image.repo_digests, [registry.digest_reference("t/index", &index)]);
    assert_eq!(node.pull(&registry.reference("t/index", "a")).await.unwrap().id, image.id);
    registry.push_index("t/index", "arm", &[("arm64", &other)]).await.unwrap();
    let (what, wrong) = content(node.pull(&registry.reference("t/index", "arm")).await);
    assert_eq!(wrong, Wrong::Platform("linux/arm64".into()));
    assert!(what.contains("t/index:arm"), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn not_there_not_allowed_and_not_reachable_are_told_apart() {
    if !Registry::is_installed() {
        return;
    }
    let (open, closed, node) =
        (Registry::start().unwrap(), Registry::start_with_password().unwrap(), Node::new());
    assert!(matches!(node.pull(&open.reference("t/none", "1")).await, Err(ImageError::NotFound { .. })));
    closed.push_image("t/secret", "1", one_file("secret"), json!({})).await.unwrap();
    let reference = closed.reference("t/secret", "1");
    let login = |username: &str, password: &str| {
        Some(Credentials { username: username.to_owned(), password: password.to_owned() })
    };
    assert!(matches!(node.pull(&reference).await, Err(ImageError::Unauthorized { .. })));
    let wrong = node.images.pull(&reference, login(USERNAME, "wrong")).await;
    assert!(matches!(wrong, Err(ImageError::Unauthorized { .. })), "{wrong:?}");
    node.images.pull(&reference, login(USERNAME, PASSWORD)).await.unwrap();
    let address = closed.addr.clone();
    drop(closed);
    let gone = node.pull(&format!("{address}/t/secret:1")).await;
    assert!(
        matches!(&gone, Err(ImageError::Unreachable { registry, .. }) if *registry == address),
        "{gone:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_blobs_are_refused_by_name_and_the_pull_recovers() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let noise: Vec<u8> = (0..400_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let layer = Layer::builder().file("noise", 0o644, &noise).build();
    let (digest, length) = (layer.digest(), layer.bytes.len() as u64);
    let half = layer.bytes.len() / 2;
    registry.push_image("t/damage", "1", vec![layer.clone()], json!({})).await.unwrap();
    let (reference, blob) = (registry.reference("t/damage", "1"), registry.blob_path(&digest));

    let mut damaged = layer.bytes.clone();
    damaged[1000] ^= 0x10;
    fs::write(&blob, &damaged).unwrap();
    let (what, wrong) = content(node.pull(&reference).await);
    assert_eq!(what, format!("layer 1 ({digest})"));
    assert_eq!(wrong, Wrong::Digest { expected: digest.clone(), actual: digest_of(&damaged) });
    assert!(!node.blob(&digest, ".partial").exists() && !node.blob(&digest, "").exists());

    fs::write(&blob, &layer.bytes[..half]).unwrap();
    let (_, wrong) = content(node.pull(&reference).await);
    assert_eq!(wrong, Wrong::Truncated { expected: length, actual: half as u64 });
    assert_eq!(node.blob(&digest, ".partial").metadata().unwrap().len(), half as u64);
    node.assert_no_leftovers();

    fs::write(&blob, &layer.bytes).unwrap();
    let image = node.pull(&reference).await.unwrap();
    with_mount(&node, &image, |root| assert!(fs::read(root.join("noise")).unwrap() == noise));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_resumes_where_another_broke_off() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let layer = Layer::builder().compression(Compression::None).file("f", 0o644, vec![b'x'; 300_000]).build();
    let digest = layer.digest();
    registry.push_image("t/resume", "1", vec![layer.clone()], json!({})).await.unwrap();
    let reference = registry.reference("t/resume", "1");
    // A wrong byte in what is there already shows that it is used: the whole then has the wrong digest.
    let mut begun = layer.bytes[..200_000].to_vec();
    begun[150_000] ^= 1;
    fs::write(node.blob(&digest, ".partial"), &begun).unwrap();
    let (_, wrong) = content(node.pull(&reference).await);
    assert!(matches!(wrong, Wrong::Digest { .. }), "{wrong:?}");
    fs::write(node.blob(&digest, ".partial"), &layer.bytes[..200_000]).unwrap();
    node.pull(&reference).await.unwrap();
    assert!(node.blob(&digest, "").exists() && !node.blob(&digest, ".partial").exists());

    // All of it there, but not yet renamed.
    node.images.remove(&reference).unwrap();
    fs::write(node.blob(&digest, ".partial"), &layer.bytes).unwrap();
    fs::remove_file(registry.blob_path(&digest)).unwrap();
    node.pull(&reference).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_images_are_refused_with_what_and_where() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let good = one_file("good").remove(0);
    let reference = |tag: &str| registry.reference("t/bad", tag);

    registry.push_with_config("t/bad", "config", &[good.clone()], b"<html>").await.unwrap();
    let (what, wrong) = content(node.pull(&reference("config")).await);
    assert!(what.starts_with("config (sha256:") && matches!(wrong, Wrong::Json(_)), "{what}: {wrong}");

    let config = json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": [] } });
    registry
        .push_with_config("t/bad", "count", &[good.clone()], config.to_string().as_bytes())
        .await
        .unwrap();
    let (_, wrong) = content(node.pull(&reference("count")).await);
    assert_eq!(wrong, Wrong::LayerCount { layers: 1, diff_ids: 0 });

    let mut odd = good.clone();
    odd.media_type = "application/x-squashfs".to_owned();
    registry.push_image("t/bad", "type", vec![odd], json!({})).await.unwrap();
    let (_, wrong) = content(node.pull(&reference("type")).await);
    assert_eq!(wrong, Wrong::MediaType("application/x-squashfs".into()));

    let mut mislabelled = good.clone();
    mislabelled.diff_id = digest_of(b"something else");
    registry.push_image("t/bad", "diff", vec![mislabelled], json!({})).await.unwrap();
    let (_, wrong) = content(node.pull(&reference("diff")).await);
    assert!(matches!(wrong, Wrong::DiffId { .. }), "{wrong:?}");

    let mut not_gzip = good.clone();
    not_gzip.bytes = b"this is not gzip at all".to_vec();
    registry.push_image("t/bad", "gzip", vec![good.clone(), not_gzip], json!({})).await.unwrap();
    let (what, wrong) = content(node.pull(&reference("gzip")).await);
    assert!(what.starts_with("layer 2 ") && matches!(wrong, Wrong::Decompress(_)), "{what}: {wrong}");
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_archives_are_refused_with_the_entry() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let escape = Layer::builder().record("path", b"../../etc/cron.d/x").file("x", 0o644, "x").build();
    let cut = Layer::builder().file("a/cut", 0o644, vec![1; 5000]).into_tar();
    let sparse = Layer::builder().record("GNU.sparse.major", b"1").file("holes", 0o644, "x").build();
    let link = Layer::builder().hard_link("alias", "nowhere").build();
    for (tag, layer, expected) in [
        ("escape", escape, "entry \"../../etc/cron.d/x\": the path has a \"..\" component"),
        (
            "cut",
            Layer::from_tar(&cut[..2000], Compression::Gzip),
            "the archive is broken in entry \"a/cut\": it ends 3512 bytes before the entry does",
        ),
        (
            "noise",
            Layer::from_tar(&[b'x'; 2048], Compression::Zstd),
            "the archive is broken at byte 512: the bytes before it are no tar header",
        ),
        ("sparse", sparse, "sparse entries are not supported"),
        ("link", link, "entry \"alias\": hard link to \"nowhere\", which does not exist"),
    ] {
        registry.push_image("t/archive", tag, vec![layer], json!({})).await.unwrap();
        let error = node.pull(&registry.reference("t/archive", tag)).await.unwrap_err().to_string();
        assert!(error.starts_with("layer 1 (sha256:") && error.contains(expected), "{error}");
    }
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decompression_bomb_meets_the_bound() {
    if !Registry::is_installed() {
        return;
    }
    let node = Node::with_limits(Limits { unpacked_bytes: 1 << 20, ..Limits::default() });
    let registry = Registry::start().unwrap();
    for (tag, compression) in [("gzip", Compression::Gzip), ("zstd", Compression::Zstd)] {
        let bomb = Layer::builder().compression(compression).file("zeros", 0o644, vec![0; 8 << 20]).build();
        assert!(bomb.bytes.len() < 100_000);
        registry.push_image("t/bomb", tag, vec![bomb], json!({})).await.unwrap();
        let (_, wrong) = content(node.pull(&registry.reference("t/bomb", tag)).await);
        assert!(
            matches!(wrong, Wrong::Limit { unit: "uncompressed bytes", limit: 1_048_576, .. }),
            "{wrong:?}"
        );
    }
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_layers_is_an_empty_directory() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    registry.push_image("t/empty", "1", Vec::new(), json!({})).await.unwrap();
    let image = node.pull(&registry.reference("t/empty", "1")).await.unwrap();
    assert!(image.size_bytes > 0);
    with_mount(&node, &image, |root| assert_eq!(fs::read_dir(root).unwrap().count(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_goes_on_when_its_caller_goes_away() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    registry.push_image("t/away", "1", one_file("x"), json!({})).await.unwrap();
    let reference = registry.reference("t/away", "1");
    let left = tokio::time::timeout(Duration::ZERO, node.pull(&reference)).await;
    assert!(left.is_err());
    while node.images.find(&reference).is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_share_layers_can_be_pulled_at_once() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let layers: Vec<Layer> = (0..4)
        .map(|n| Layer::builder().file(&format!("shared-{n}"), 0o644, vec![n; 500_000]).build())
        .collect();
    for tag in 0..4_usize {
        let mut order = layers.clone();
        order.rotate_left(tag);
        registry
            .push_image("t/shared", &tag.to_string(), order, json!({ "Cmd": [tag.to_string()] }))
            .await
            .unwrap();
    }
    let pulls = (0..8).map(|n| {
        let (images, reference) = (node.images.clone(), registry.reference("t/shared", &(n % 4).to_string()));
        tokio::spawn(async move { images.pull(&reference, None).await.unwrap() })
    });
    for pull in pulls.collect::<Vec<_>>() {
        pull.await.unwrap();
    }
    assert_eq!(node.images.list().len(), 4);
    // Four layers and four configs.
    assert_eq!(fs::read_dir(node.directory.path().join("blobs/sha256")).unwrap().count(), 8);
}
