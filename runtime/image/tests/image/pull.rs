//! Images pulled from a real registry (`docker-registry` on loopback). Prints a note and passes if it is not
//! installed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::node::{Node, content, one_file, with_mount};
use runtime_image::{ContentError, ImageError, Images, RegistryConfig};
use serde_json::json;
use tests_registry::{Compression, Layer, Registry, busybox_image};

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
        .hard_link("big-too", 0o644, "big")
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
    assert_eq!((image.config.run.user.as_str(), image.config.run.working_dir.as_str()), ("1000:100", "/etc"));
    assert_eq!(
        (image.config.run.entrypoint.as_slice(), image.config.run.cmd.as_slice()),
        (&["/init".to_owned()][..], &["x".to_owned()][..])
    );
    assert_eq!(image.config.run.stop_signal, "SIGINT");
    let parts = node.images.open_image(&image.id).unwrap().parts;
    assert!(parts.iter().all(|part| part.length % (2 << 20) == 0));
    // The metadata, and two layers with contents.
    assert_eq!(parts.len(), 3);
    assert!(image.size_bytes > 3_000_000 && image.size_bytes <= image.range_bytes);
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
    assert_eq!(image.config.run.cmd, ["sh"]);
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
    assert_eq!(image.repo_digests, std::slice::from_ref(&by_digest));
    for name in [&one, &two, &by_digest, &image.id, &image.id[7..].to_owned(), &image.id[7..20].to_owned()] {
        assert_eq!(node.images.find(name).as_ref(), Some(&image), "{name}");
    }

    registry.push_image("t/names", "1", one_file("second"), json!({})).await.unwrap();
    let newer = node.pull(&one).await.unwrap();
    assert_ne!(newer.id, image.id);
    assert_eq!(newer.repo_tags, std::slice::from_ref(&one));
    assert_eq!(node.images.find(&image.id).unwrap().repo_tags, std::slice::from_ref(&two));

    let reopened = Images::open(node.directory.path(), RegistryConfig::default()).unwrap();
    assert_eq!(reopened.list(), node.images.list());

    node.images.remove(&two).unwrap();
    node.images.remove(&two).unwrap();
    assert!(node.images.find(&by_digest).is_none());
    assert_eq!(node.images.list(), std::slice::from_ref(&newer));
    assert!(matches!(node.images.open_image(&image.id), Err(ImageError::Unknown(id)) if id == image.id));
    node.images.remove(&newer.id).unwrap();
    assert_eq!([node.count("blobs/sha256"), node.count("layers"), node.count("images")], [0; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_gives_the_image_for_our_architecture() {
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
    assert_eq!(wrong, ContentError::Platform("linux/arm64".into()));
    assert!(what.contains("t/index:arm"), "{what}");
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
    fs::write(node.blob(&digest, ".partial"), &layer.bytes[..200_000]).unwrap();
    // A wrong byte at the registry proves the use of the existing part: the whole blob would have the wrong
    // digest.
    let mut damaged = layer.bytes.clone();
    damaged[150_000] ^= 1;
    fs::write(registry.blob_path(&digest), &damaged).unwrap();
    node.pull(&reference).await.unwrap();
    assert!(!node.blob(&digest, "").exists() && !node.blob(&digest, ".partial").exists());

    // The existing part is damaged, and the end reveals it: the blob is fetched from its beginning.
    fs::write(registry.blob_path(&digest), &layer.bytes).unwrap();
    for suffix in [".partial", ""] {
        node.images.remove(&reference).unwrap();
        fs::write(
            node.blob(&digest, suffix),
            &damaged[..if suffix.is_empty() { damaged.len() } else { 200_000 }],
        )
        .unwrap();
        node.pull(&reference).await.unwrap();
    }

    // All of it there, but not yet renamed.
    node.images.remove(&reference).unwrap();
    fs::write(node.blob(&digest, ".partial"), &layer.bytes).unwrap();
    fs::remove_file(registry.blob_path(&digest)).unwrap();
    node.pull(&reference).await.unwrap();
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
    assert_eq!(node.count("blobs/sha256"), 0, "nobody needs them any more");
    assert_eq!(node.count("layers"), 2 * 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_by_gnu_tar_is_read_as_it_is() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let source = tempfile::tempdir().unwrap();
    let script = "set -e; cp -a /etc/. .; mkdir -p long/$(printf 'd%.0s' $(seq 200))/$(printf 'e%.0s' $(seq 200)); \
        deep=$(echo long/*/*); touch -d '1950-01-02 03:04:05.5' $deep/early; ln $deep/early hard; mkfifo pipe; \
        ln -s $(printf 't%.0s' $(seq 300)) symlink; dd if=/dev/urandom of=random bs=1000 count=3001 status=none";
    assert!(Command::new("sh").args(["-c", script]).current_dir(source.path()).status().unwrap().success());
    // Type, mode, owner, size if there is one, links of files, target, seconds of the time.
    let listing = |root: &Path| {
        let script = "find . -mindepth 1 ! -type s \\( -type d -printf '%p %y %m %U %G %Ts\\n' \
            -o -printf '%p %y %m %U %G %s %n %l %Ts\\n' \\) | LC_ALL=C sort; \
            find . -type f -exec sha256sum {} + | LC_ALL=C sort";
        let output = Command::new("sh").args(["-c", script]).current_dir(root).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for format in ["gnu", "pax"] {
        let tar = Command::new("tar")
            .args([&format!("--format={format}"), "--sort=name", "-cf", "-", "."])
            .current_dir(source.path())
            .output()
            .unwrap();
        let layer = Layer::from_tar(&tar.stdout, Compression::Zstd);
        registry.push_image("t/tar", format, vec![layer], json!({})).await.unwrap();
        let image = node.pull(&registry.reference("t/tar", format)).await.unwrap();
        with_mount(&node, &image, |root| {
            let (there, here) = (listing(root), listing(source.path()));
            let difference = there.lines().zip(here.lines()).find(|(there, here)| there != here);
            assert!(there == here, "{format}: {difference:?}");
            assert!(here.lines().count() > 100);
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_read_as_builders_write_them() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let mut layers = Vec::new();
    // The label and the bytes disagree.
    for (number, compression) in
        [Compression::None, Compression::Gzip, Compression::Zstd].into_iter().enumerate()
    {
        let name = format!("./d//{number}/../{number}");
        let mut layer = Layer::builder().compression(compression).record("path", name.as_bytes());
        layer = layer.file("x", 0o644, "content");
        let mut layer = layer.build();
        layer.media_type =
            format!("application/vnd.oci.image.layer.v1.tar{}", ["+gzip", "+zstd", ""][number]);
        layers.push(layer);
    }
    let escape = Layer::builder().record("path", b"../../etc/cron.d/x").file("x", 0o644, "x");
    layers.push(escape.symlink("link", "etc").build());
    registry.push_image("t/odd", "1", layers, json!({})).await.unwrap();
    let image = node.pull(&registry.reference("t/odd", "1")).await.unwrap();
    with_mount(&node, &image, |root| {
        for number in 0..3 {
            assert_eq!(fs::read(root.join(format!("d/{number}"))).unwrap(), b"content");
        }
        assert_eq!(fs::read(root.join("link/cron.d/x")).unwrap(), b"x");
    });
}
