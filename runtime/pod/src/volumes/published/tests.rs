//! Volumes on a directory of the test's own, laid out as the kubelet does it.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn version_at(volume: &Path, name: &str, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = volume.join(name).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let _ = fs::remove_file(volume.join(DATA));
    symlink(name, volume.join(DATA)).unwrap();
}

fn paths(snapshot: &Snapshot) -> Vec<(&str, Option<&[u8]>)> {
    snapshot.files.iter().map(|file| (file.path.as_str(), file.content.as_deref())).collect()
}

fn why(outcome: Result<Snapshot, ReadError>) -> &'static str {
    match outcome.unwrap_err() {
        ReadError::Unlike(why) => why,
        error => panic!("{error}"),
    }
}

#[test]
fn a_version_is_read_with_parents_before_their_files() {
    let dir = tempfile::tempdir().unwrap();
    version_at(dir.path(), "..1", &[("a/b/c", "deep"), ("key", "")]);
    symlink("..data/a", dir.path().join("a")).unwrap();
    symlink("..data/key", dir.path().join("key")).unwrap();
    // Left by a killed kubelet.
    fs::create_dir(dir.path().join("..0")).unwrap();
    symlink("..0", dir.path().join("..data_tmp")).unwrap();
    let found = read(dir.path()).unwrap();
    assert_eq!(found.version.as_deref(), Some("..1"));
    let wanted: [(&str, Option<&[u8]>); 4] =
        [("a", None), ("a/b", None), ("a/b/c", Some(b"deep")), ("key", Some(b""))];
    assert_eq!(paths(&found), wanted);
    assert_eq!(found.bytes, 3 * PAGE_BYTES);
    assert_eq!(version(dir.path()).unwrap(), "..1");
}

#[test]
fn a_directory_that_the_kubelet_did_not_lay_out_is_not_copied() {
    let make: [fn(&Path); 6] = [
        |_| {},
        |volume| fs::write(volume.join("..data"), "").unwrap(),
        |volume| symlink("/etc", volume.join("..data")).unwrap(),
        |volume| symlink("plain", volume.join("..data")).unwrap(),
        |volume| {
            version_at(volume, "..1", &[("key", "")]);
            fs::write(volume.join("extra"), "").unwrap();
        },
        |volume| {
            version_at(volume, "..1", &[("key", "")]);
            symlink("../../etc/passwd", volume.join("key")).unwrap();
        },
    ];
    for (number, make) in make.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path());
        assert!(!why(read(dir.path())).is_empty(), "{number}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    symlink(dir.path(), dir.path().join("link")).unwrap();
    for place in ["file", "link"] {
        assert_eq!(why(read(&dir.path().join(place))), "is no directory", "{place}");
    }
}

#[test]
fn no_link_in_a_version_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    version_at(dir.path(), "..1", &[("key", "")]);
    symlink("/etc/passwd", dir.path().join("..1/link")).unwrap();
    assert_eq!(why(read(dir.path())), "holds an entry of another type");
    fs::remove_file(dir.path().join("..1/link")).unwrap();
    rustix::fs::mknodat(CWD, dir.path().join("..1/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(why(read(dir.path())), "holds an entry of another type");
}

#[test]
fn what_is_too_large_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (half, page) = ("x".repeat(4 << 20), "y");
    version_at(dir.path(), "..1", &[("a", &half), ("b", &half)]);
    assert_eq!(read(dir.path()).unwrap().bytes, BYTES_MAX);
    version_at(dir.path(), "..2", &[("a", &half), ("b", &half), ("c", page)]);
    assert_eq!(why(read(dir.path())), "is too large to be copied");
    let many = tempfile::tempdir().unwrap();
    version_at(many.path(), "..1", &[("key", "")]);
    for number in 0..FILES_MAX {
        fs::write(many.path().join("..1").join(number.to_string()), "").unwrap();
    }
    assert_eq!(why(read(many.path())), "has more files than are copied");
}

#[test]
fn a_part_is_read_whether_it_is_a_file_or_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key"), "one").unwrap();
    let part = read_part(&dir.path().join("key")).unwrap();
    assert!(part.is_file && part.version.is_none());
    let wanted: [(&str, Option<&[u8]>); 1] = [(PART, Some(b"one"))];
    assert_eq!(paths(&part), wanted);
    let part = read_part(dir.path()).unwrap();
    let wanted: [(&str, Option<&[u8]>); 1] = [("key", Some(b"one"))];
    assert!(!part.is_file);
    assert_eq!(paths(&part), wanted);
    let socket = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(read_part(&socket).is_err());
    assert!(read_part(&dir.path().join("none")).unwrap_err().is_absent());
}

#[test]
fn a_read_finds_one_version_while_the_kubelet_replaces_them() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    version_at(dir.path(), "..0", &[("a", "0"), ("b", "0")]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..300 {
                let (name, text) = (format!("..{number}"), number.to_string());
                fs::create_dir(dir.path().join(&name)).unwrap();
                for file in ["a", "b"] {
                    fs::write(dir.path().join(&name).join(file), &text).unwrap();
                }
                symlink(&name, dir.path().join("..data_tmp")).unwrap();
                fs::rename(dir.path().join("..data_tmp"), dir.path().join(DATA)).unwrap();
                fs::remove_dir_all(dir.path().join(format!("..{}", number - 1))).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            // All attempts may meet a disappearing version.
            let Ok(found) = read(dir.path()) else { continue };
            let number = found.version.unwrap()[2..].to_owned();
            let texts: Vec<_> = found.files.iter().map(|file| file.content.clone().unwrap()).collect();
            assert!(texts.iter().all(|text| *text == number.as_bytes()), "{number}: {texts:?}");
            assert_eq!(texts.len(), 2);
        }
    });
}
