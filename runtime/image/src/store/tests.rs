//! The index and its files, without a registry.

use super::*;

fn id(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn record(digit: char, tag: &str, blobs: &[char]) -> Record {
    Record {
        id: id(digit),
        repo_tags: vec![format!("host.io/{tag}")],
        repo_digests: vec![format!("host.io/a@{}", id(digit))],
        size_bytes: 4096,
        blobs: blobs.iter().map(|blob| id(*blob)).collect(),
        config: DeclaredConfig::default(),
    }
}

fn store_with(directory: &Path, records: &[Record]) -> Arc<Store> {
    let store = Arc::new(Store::open(directory).unwrap());
    for record in records {
        fs::write(store.image_path(&record.id).unwrap(), b"image").unwrap();
        for blob in &record.blobs {
            fs::write(store.blobs().join(digest_hex(blob).unwrap()), b"blob").unwrap();
        }
        store.add(record.clone()).unwrap();
    }
    store
}

fn blobs(store: &Store) -> usize {
    fs::read_dir(store.blobs()).unwrap().count()
}

#[test]
fn an_image_is_found_by_every_one_of_its_names() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:latest", &[]), record('b', "a:2", &[])]);
    for name in [
        "host.io/a",
        "host.io/a:latest",
        &format!("host.io/a@{}", id('a')),
        &id('a'),
        &"a".repeat(64),
        &"a".repeat(13),
    ] {
        assert_eq!(store.find(name).map(|record| record.id), Some(id('a')), "{name}");
    }
    assert!(store.find("host.io/a:3").is_none());
    assert!(store.find("NOT a name").is_none());
    assert!(store.find("sha256:c").is_none());
}

#[test]
fn a_tag_that_moves_leaves_its_old_image_untagged() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &[]), record('b', "a:1", &[])]);
    assert!(store.get(&id('a')).unwrap().repo_tags.is_empty());
    assert_eq!(store.find("host.io/a:1").unwrap().id, id('b'));
}

#[test]
fn removal_keeps_blobs_that_another_image_or_a_pull_needs() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        store_with(directory.path(), &[record('a', "a:1", &['1', '2', '3']), record('b', "b:1", &['2'])]);
    let pins = store.pin(vec![id('3')]);
    store.remove(&id('a')).unwrap();
    assert_eq!(blobs(&store), 2);
    assert!(!store.image_path(&id('a')).unwrap().exists());
    drop(pins);
    store.remove(&id('b')).unwrap();
    store.remove(&id('b')).unwrap();
    assert!(store.list().is_empty());
}

#[test]
fn blobs_that_a_removal_could_not_remove_go_with_its_repetition_or_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1', '2'])]);
    let stuck = store.blobs().join("2".repeat(64));
    // A file cannot be removed as on a broken disk.
    let break_blob = || {
        fs::remove_file(&stuck).unwrap();
        fs::create_dir(&stuck).unwrap();
    };
    let mend_blob = || {
        fs::remove_dir(&stuck).unwrap();
        fs::write(&stuck, b"blob").unwrap();
    };
    break_blob();
    store.remove(&id('a')).unwrap_err();
    assert!(store.list().is_empty());
    mend_blob();
    store.remove(&id('a')).unwrap();
    assert_eq!(blobs(&store), 0);

    drop(store);
    let store = store_with(directory.path(), &[record('a', "a:1", &['1', '2'])]);
    break_blob();
    store.remove(&id('a')).unwrap_err();
    mend_blob();
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(blobs(&store), 0);
}

#[test]
fn a_start_that_finds_an_image_without_its_file_removes_its_blobs() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &['1', '2'])]);
    // As after a kill between the file's removal and the index.
    fs::remove_file(store.image_path(&id('b')).unwrap()).unwrap();
    drop(store);
    assert_eq!(blobs(&Store::open(directory.path()).unwrap()), 1);
}

#[test]
fn an_image_is_removed_though_the_index_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &[])]);
    // As on a full disk: the new index cannot be made.
    let new = directory.path().join("images.new");
    fs::create_dir(&new).unwrap();
    store.remove(&id('a')).unwrap();
    assert!(store.get(&id('a')).is_none());
    assert_eq!(blobs(&store), 0);
    drop(store);
    fs::remove_dir(&new).unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.list().into_iter().map(|record| record.id).collect::<Vec<_>>(), [id('b')]);
}

#[test]
fn a_start_finds_its_images_again_and_clears_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &[])]);
    fs::write(store.image_path(&id('c')).unwrap(), b"orphan").unwrap();
    fs::write(store.blobs().join(format!("{}.partial", "d".repeat(64))), b"resumable").unwrap();
    fs::create_dir_all(store.temporary().join("pull")).unwrap();
    fs::remove_file(store.image_path(&id('b')).unwrap()).unwrap();
    let before = store.get(&id('a'));
    drop(store);

    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.get(&id('a')), before);
    assert!(store.get(&id('b')).is_none());
    assert!(!store.image_path(&id('c')).unwrap().exists());
    assert_eq!(fs::read_dir(store.temporary()).unwrap().count(), 0);
    assert_eq!(blobs(&store), 2);
    store.sweep(Duration::ZERO).unwrap();
    assert_eq!(blobs(&store), 1);
}

#[test]
fn an_index_of_an_earlier_version_is_read_where_it_has_no_stop_signal() {
    let directory = tempfile::tempdir().unwrap();
    let mut labelled = record('a', "a:1", &[]);
    labelled.config.run.cmd = vec!["sh".into()];
    labelled.config.labels.insert("k".into(), "v".into());
    drop(store_with(directory.path(), &[labelled.clone()]));
    let path = directory.path().join("images.json");
    let text = fs::read_to_string(&path).unwrap();
    let earlier = text.replace("\"stop_signal\": \"\"", "\"stop_signal\": null");
    assert_ne!(earlier, text);
    fs::write(&path, earlier).unwrap();
    assert_eq!(Store::open(directory.path()).unwrap().get(&id('a')), Some(labelled));
}

#[test]
fn an_index_that_cannot_be_read_is_not_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("images.json"), b"{").unwrap();
    assert!(matches!(Store::open(directory.path()), Err(ImageError::Disk { .. })));
    fs::write(directory.path().join("images.json"), br#"{"version":9,"images":[]}"#).unwrap();
    assert!(Store::open(directory.path()).is_err());
    assert!(directory.path().join("images.json").exists());
}

/// Makes the index's next file a pipe, so that a writer waits for a reader as it would wait for a frozen disk.
fn freeze(directory: &Path) -> std::path::PathBuf {
    let new = directory.join("images.new");
    nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU).unwrap();
    new
}

/// Waits until the frozen disk has a writer.
fn thaw(pipe: &Path) {
    // The open returns as soon as the writer is there, and its sync of a pipe fails then.
    drop(File::open(pipe).unwrap());
}

#[test]
fn readers_do_not_wait_for_a_disk_that_does_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &[])]);
    let pipe = freeze(directory.path());
    let (writing, writer) = (Arc::clone(&store), record('b', "b:2", &[]));
    let adding = std::thread::spawn(move || writing.add(writer));
    // The writer has the index once it has begun with its file.
    while store.writer.try_lock().is_ok() {
        std::thread::yield_now();
    }
    let (reading, sender) = (Arc::clone(&store), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let found = (reading.list().len(), reading.find("host.io/a:1").is_some());
        drop(reading.pin(vec![id('1')]));
        sender.0.send(found)
    });
    let answered = sender.1.recv_timeout(Duration::from_secs(60));
    thaw(&pipe);
    assert!(adding.join().unwrap().is_err(), "a pipe cannot be synced");
    assert_eq!(answered, Ok((2, true)));
    assert_eq!(store.get(&id('b')).unwrap().repo_tags, ["host.io/b:1"], "what is not on disk is not shown");
}
