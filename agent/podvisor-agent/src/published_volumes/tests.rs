//! Published volumes on a directory of the test's own, with readers and kills.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto_agent::agent::PublishedFile;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::*;

fn mine(mode: u32) -> FileAccess {
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    FileAccess { mode, uid, gid, ..FileAccess::default() }
}

fn volumes(dir: &tempfile::TempDir) -> PublishedVolumes {
    PublishedVolumes { directory: dir.path().to_owned(), known: Mutex::default() }
}

fn file(path: &str, content: &str) -> PublishedFile {
    PublishedFile {
        path: path.into(),
        access: Some(mine(0o640)).into(),
        content: content.into(),
        ..PublishedFile::default()
    }
}

fn directory(path: &str) -> PublishedFile {
    PublishedFile { directory: true, access: Some(mine(0o750)).into(), content: Vec::new(), ..file(path, "") }
}

/// A whole version in one piece.
fn whole(version: &str, files: Vec<PublishedFile>) -> PublishVolumeRequest {
    PublishVolumeRequest {
        volume: "v1".into(),
        transfer: 7,
        version: version.into(),
        first: true,
        last: true,
        root: Some(mine(0o2770)).into(),
        top: Some(mine(0o755)).into(),
        files,
        ..PublishVolumeRequest::default()
    }
}

/// The content of a directory: links with their targets, files with their content, directories.
fn tree(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            found.insert(name, format!("-> {}", fs::read_link(entry.path()).unwrap().display()));
        } else if kind.is_dir() {
            let below = tree(&entry.path()).into_iter().map(|(path, what)| (format!("{name}/{path}"), what));
            found.extend(below.collect::<Vec<_>>());
            found.insert(format!("{name}/"), String::new());
        } else {
            found.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    found
}

fn expected(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(path, what)| ((*path).to_owned(), (*what).to_owned())).collect()
}

#[test]
fn a_version_is_laid_out_as_the_kubelet_does_it() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    let files = vec![file("key", "one"), directory("a"), file("a/b", "two")];
    assert_eq!(volumes.publish(&whole("..2026_1", files)).unwrap(), Taken::Version { old: None });
    let volume = dir.path().join("v1/volume");
    let first = [
        ("..data", "-> ..2026_1"),
        ("..2026_1/", ""),
        ("..2026_1/key", "one"),
        ("..2026_1/a/", ""),
        ("..2026_1/a/b", "two"),
        ("key", "-> ..data/key"),
        ("a", "-> ..data/a"),
    ];
    assert_eq!(tree(&volume), expected(&first));
    let mode = |path: &str| fs::metadata(volume.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode(""), mode("key"), mode("a"), mode("..data")), (0o2770, 0o640, 0o750, 0o755));

    let open = fs::File::open(volume.join("..data")).unwrap();
    let old = volumes.publish(&whole("..2026_2", vec![file("new", "three")])).unwrap();
    assert_eq!(old, Taken::Version { old: Some("..2026_1".into()) });
    // A reader under way still finds the files behind its link.
    let found = rustix::fs::openat(&open, "key", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    assert!(found.is_ok() && volume.join("..2026_1").exists());
    volumes.remove_old("v1", OsStr::new("..2026_1"));
    volumes.remove_old("v1", OsStr::new("..2026_2"));
    let second =
        [("..data", "-> ..2026_2"), ("..2026_2/", ""), ("..2026_2/new", "three"), ("new", "-> ..data/new")];
    assert_eq!(tree(&volume), expected(&second));
    assert!(!dir.path().join("v1/incoming").exists());
}

#[test]
fn a_version_that_comes_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    volumes.publish(&whole("..1", vec![file("key", "one")])).unwrap();
    let inode = || fs::metadata(dir.path().join("v1/volume/key")).unwrap().ino();
    let before = inode();
    let begin = PublishVolumeRequest { last: false, ..whole("..1", Vec::new()) };
    assert_eq!(volumes.publish(&begin).unwrap(), Taken::Current);
    assert_eq!(inode(), before);
    // The sender then knows not to continue.
    let more = PublishVolumeRequest { first: false, ..whole("..1", vec![file("key", "other")]) };
    assert!(matches!(volumes.publish(&more).unwrap_err(), PublishedVolumeError::Transfer(_)));
    assert_eq!(fs::read_to_string(dir.path().join("v1/volume/key")).unwrap(), "one");
}

#[test]
fn pieces_of_a_version_that_was_given_up_are_in_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    let piece = |transfer, first, last, files| PublishVolumeRequest {
        transfer,
        first,
        last,
        ..whole(if transfer == 1 { "..1" } else { "..2" }, files)
    };
    volumes.publish(&piece(1, true, false, vec![file("old", "x")])).unwrap();
    volumes.publish(&piece(2, true, false, vec![file("key", "one ")])).unwrap();
    // A late call, given up by its caller.
    let late = volumes.publish(&piece(1, false, true, vec![file("key", "late")])).unwrap_err();
    assert!(matches!(late, PublishedVolumeError::Transfer(_)));
    let rest = PublishedFile { offset: 4, ..file("key", "two") };
    assert!(!dir.path().join("v1/volume").exists());
    volumes.publish(&piece(2, false, true, vec![rest])).unwrap();
    let volume = dir.path().join("v1/volume");
    assert_eq!(fs::read_to_string(volume.join("key")).unwrap(), "one two");
    assert!(!volume.join("old").exists());
}

#[test]
fn hostile_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    for path in
        ["", "/etc/passwd", "../x", "a/../../x", "..data", "..", ".", "a//b", "a/", "a\0b", "..2026/x"]
    {
        let error = volumes.publish(&whole("..1", vec![file(path, "x")])).unwrap_err();
        assert!(matches!(error, PublishedVolumeError::Name(_)), "{path:?}: {error}");
    }
    for version in ["plain", "..", "..data", "..data_tmp", "../x", "..a/b", &format!("..{}", "x".repeat(254))]
    {
        let error = volumes.publish(&whole(version, Vec::new())).unwrap_err();
        assert!(matches!(error, PublishedVolumeError::Name(_)), "{version:?}: {error}");
    }
    for volume in ["", "..", "a/b", "A", "a-b", &"a".repeat(65)] {
        let request = PublishVolumeRequest { volume: volume.into(), ..whole("..1", Vec::new()) };
        assert!(
            matches!(volumes.publish(&request).unwrap_err(), PublishedVolumeError::Name(_)),
            "{volume:?}"
        );
        assert!(volumes.open(volume, "").is_err());
    }
    assert!(!dir.path().join("v1/volume").exists());
}

#[test]
fn a_swap_that_ends_after_any_step_leaves_one_whole_version_and_the_next_one_cleans_up() {
    for steps in 0..=4 {
        let dir = tempfile::tempdir().unwrap();
        let volumes = volumes(&dir);
        volumes.publish(&whole("..1", vec![file("key", "one"), file("gone", "one")])).unwrap();
        let (volume, incoming) = (dir.path().join("v1/volume"), dir.path().join("v1/incoming"));
        let begin = PublishVolumeRequest {
            last: false,
            ..whole("..2", vec![file("key", "two"), file("new", "two")])
        };
        volumes.publish(&begin).unwrap();
        swap::first_steps(&volume, &incoming, "..2", steps).unwrap();
        let read = |name: &str| fs::read_to_string(volume.join("..data").join(name));
        let found = read("key").unwrap();
        let other = if found == "one" { "gone" } else { "new" };
        assert_eq!(read(other).unwrap(), found, "after {steps} steps");
        assert_eq!(found == "two", steps >= 3);
        // The daemon sends the version again, to the end.
        if volumes.publish(&PublishVolumeRequest { transfer: 8, ..begin.clone() }).unwrap() != Taken::Current
        {
            let rest = PublishVolumeRequest { transfer: 8, first: false, ..whole("..2", Vec::new()) };
            volumes.publish(&rest).unwrap();
        }
        volumes.remove_old("v1", OsStr::new("..1"));
        let whole_version = [
            ("..data", "-> ..2"),
            ("..2/", ""),
            ("..2/key", "two"),
            ("..2/new", "two"),
            ("key", "-> ..data/key"),
            ("new", "-> ..data/new"),
        ];
        assert_eq!(tree(&volume), expected(&whole_version), "after {steps} steps");
    }
}

#[test]
fn readers_never_see_files_of_two_versions() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    let version = |number: u32| {
        let text = number.to_string();
        whole(&format!("..{number}"), vec![file("a", &text), file("b", &text)])
    };
    volumes.publish(&version(0)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (done, data) = (done.clone(), dir.path().join("v1/volume/..data"));
        std::thread::spawn(move || {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                // Like a reloader: reads the link once, then the files there.
                let Ok(place) = fs::canonicalize(&data) else { continue };
                let read = |name: &str| fs::read_to_string(place.join(name));
                let (Ok(a), Ok(b)) = (read("a"), read("b")) else { continue };
                assert_eq!(a, b);
                let number: u32 = a.parse().unwrap();
                assert!(number >= last);
                last = number;
            }
        })
    };
    for number in 1..200 {
        volumes.publish(&version(number)).unwrap();
    }
    done.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("v1/volume/a")).unwrap(), "199");
}

#[test]
fn whoever_waits_for_the_volumes_directory_is_woken_by_each_version() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    volumes.publish(&whole("..0", vec![file("a", "0")])).unwrap();
    let instance = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&instance, dir.path().join("v1/volume"), WatchFlags::MOVED_TO).unwrap();
    for number in 1..20 {
        volumes.publish(&whole(&format!("..{number}"), vec![file("a", "x")])).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&instance, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()));
        }
        assert!(names.contains(&"..data".to_owned()), "{number}: {names:?}");
    }
}

#[test]
fn a_volume_without_versions_is_written_once_and_goes_with_its_container() {
    let dir = tempfile::tempdir().unwrap();
    let volumes = volumes(&dir);
    let of = |container: &str, volume: &str| PublishVolumeRequest {
        container_id: container.into(),
        volume: volume.into(),
        ..whole("", vec![file("file", "one")])
    };
    volumes.publish(&of("c1", "a")).unwrap();
    volumes.publish(&of("c2", "b")).unwrap();
    volumes.publish(&whole("..1", vec![file("key", "x")])).unwrap();
    assert_eq!(volumes.publish(&of("c1", "a")).unwrap(), Taken::Current);
    volumes.open("a", "file").unwrap();
    assert!(volumes.open("a", "../../b/volume/file").is_err());
    volumes.remove_of("c1").unwrap();
    volumes.remove_of("").unwrap();
    assert!(volumes.open("a", "file").is_err());
    volumes.open("b", "file").unwrap();
    volumes.open("v1", "").unwrap();
}
