//! Templates on the disk, whole and odd.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;

const BYTES: u64 = 4 << 20;

fn template(first: &[u8]) -> Template {
    let (memory, state) = (in_memory().unwrap(), in_memory().unwrap());
    memory.set_len(BYTES).unwrap();
    memory.write_all_at(first, 3 * 4096 + 7).unwrap();
    memory.write_all_at(b"end", BYTES - 3).unwrap();
    state.write_all_at(b"{\"format\":1}", 0).unwrap();
    let (memory, state) = (memory_file::finish(&memory).unwrap(), memory_file::finish(&state).unwrap());
    Template::new(memory, state, UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_template_is_read_as_it_was_written_and_is_roots_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("templates");
    assert!(load(&dir, "ab", BYTES).unwrap().is_none());
    let written = template(b"guest");
    write(&dir, "ab", &written).unwrap();
    let read = load(&dir, "ab", BYTES).unwrap().unwrap();
    assert_eq!(read.made, written.made);
    assert!(content(&read.memory) == content(&written.memory));
    assert_eq!(content(&read.state), content(&written.state));
    assert!(read.memory.write_all_at(b"x", 0).is_err() && read.memory.set_len(0).is_err(), "it is sealed");
    let memory = fs::metadata(dir.join("ab").join(MEMORY)).unwrap();
    assert!(memory.blocks() * 512 < BYTES / 4, "zeros are holes");
    for (path, mode) in [("", 0o700), ("ab", 0o700), ("ab/memory", 0o600), ("ab/state", 0o600)] {
        assert_eq!(fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o777, mode, "{path}");
    }
    write(&dir, "ab", &template(b"newer")).unwrap();
    let newer = load(&dir, "ab", BYTES).unwrap().unwrap();
    assert_eq!(&content(&newer.memory)[3 * 4096 + 7..][..5], b"newer");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn what_is_not_as_it_was_written_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let odd = |change: &dyn Fn()| {
        write(dir.path(), "ab", &template(b"guest")).unwrap();
        write(dir.path(), "cd", &template(b"other")).unwrap();
        change();
        load(dir.path(), "ab", BYTES).unwrap_err()
    };
    let open = |path: &str| OpenOptions::new().write(true).open(at(path)).unwrap();
    for (file, at, byte) in
        [("ab/memory", 3 * 4096 + 8, b"x"), ("ab/memory", 9 * 4096, b"x"), ("ab/state", 2, b"x")]
    {
        let flipped = odd(&|| open(file).write_all_at(byte, at).unwrap());
        assert!(matches!(flipped, TemplateFileError::Digest { .. }), "{file} {at}: {flipped}");
    }
    for (file, bytes) in
        [("ab/memory", BYTES - 4096), ("ab/memory", BYTES + 1), ("ab/state", 0), ("ab/state", 13)]
    {
        let cut = odd(&|| open(file).set_len(bytes).unwrap());
        assert!(matches!(cut, TemplateFileError::Size { .. }), "{file} {bytes}: {cut}");
    }
    let swapped = odd(&|| fs::rename(at("cd/memory"), at("ab/memory")).unwrap());
    assert!(matches!(swapped, TemplateFileError::Digest { file: MEMORY }), "{swapped}");
    let swapped = odd(&|| {
        fs::remove_dir_all(at("ab")).unwrap();
        fs::rename(at("cd"), at("ab")).unwrap();
    });
    assert!(matches!(swapped, TemplateFileError::Key { .. }), "{swapped}");
    for (file, text) in [("ab/record", ""), ("ab/record", "{}"), ("ab/record", "nonsense")] {
        let odd = odd(&|| fs::write(at(file), text).unwrap());
        assert!(matches!(odd, TemplateFileError::Record(_)), "{odd}");
    }
    for file in ["ab/record", "ab/memory", "ab/state"] {
        let lost = odd(&|| fs::remove_file(at(file)).unwrap());
        assert!(matches!(lost, TemplateFileError::Read { .. }), "{file}: {lost}");
        let linked = odd(&|| {
            fs::rename(at(file), at("elsewhere")).unwrap();
            std::os::unix::fs::symlink(at("elsewhere"), at(file)).unwrap();
        });
        assert!(matches!(linked, TemplateFileError::Read { .. }), "{file}: {linked}");
    }
    write(dir.path(), "ab", &template(b"guest")).unwrap();
    let other_size = load(dir.path(), "ab", 2 * BYTES).unwrap_err();
    assert!(matches!(other_size, TemplateFileError::Size { file: RECORD, .. }), "{other_size}");
}

#[test]
fn a_template_that_cannot_be_written_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the directory is to be.
    fs::write(dir.path().join("templates"), "").unwrap();
    assert!(write(&dir.path().join("templates"), "ab", &template(b"guest")).is_err());
    assert_eq!(fs::read(dir.path().join("templates")).unwrap(), b"");
}

#[test]
fn the_unfinished_and_the_oldest_are_swept_away() {
    let dir = tempfile::tempdir().unwrap();
    prune(&dir.path().join("none"), 1).unwrap();
    for (age, key) in ["old", "new"].into_iter().enumerate() {
        write(dir.path(), key, &template(b"guest")).unwrap();
        let time = SystemTime::now() - Duration::from_secs(100 - age as u64);
        File::open(dir.path().join(key)).unwrap().set_modified(time).unwrap();
    }
    fs::create_dir(dir.path().join(".half")).unwrap();
    fs::write(dir.path().join(".file"), "").unwrap();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    prune(dir.path(), 2).unwrap();
    assert_eq!(names(), ["new", "old"]);
    prune(dir.path(), 1).unwrap();
    assert_eq!(names(), ["new"]);
    prune(dir.path(), 0).unwrap();
    assert_eq!(names().len(), 0);
}
