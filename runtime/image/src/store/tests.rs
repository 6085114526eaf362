//! The index and its files, without a registry.

use std::fs::File;

use super::*;
use crate::config::DeclaredConfig;
use crate::layer::{Places, Unpacked};

const MIB: u64 = 1 << 20;

fn id(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn record(digit: char, tag: &str, layers: &[char]) -> Record {
    Record {
        id: id(digit),
        repo_tags: vec![format!("host.io/{tag}")],
        repo_digests: vec![format!("host.io/a@{}", id(digit))],
        size_bytes: 4096,
        file_bytes: 2 * MIB,
        verity: None,
        layers: layers.iter().map(|layer| id(*layer)).collect(),
        config: Arc::default(),
    }
}

fn file(path: &Path, bytes: u64) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// Puts a layer with a file's content, or without any, into the store, as a pull does.
fn publish(store: &Store, diff_id: &str, content_bytes: u64, first: u8) -> Result<LayerRecord, ImageError> {
    let at = |name: &str| store.temporary().join(name);
    let places = Places { data: at("data"), tree: at("tree") };
    let data = file(&places.data, content_bytes.next_multiple_of(2 * MIB));
    std::os::unix::fs::FileExt::write_all_at(&data, &[first], 0).unwrap();
    let unpacked = Unpacked { data, tree: file(&places.tree, 9), content_bytes, tree_bytes: 9 };
    store.publish_layer(diff_id, unpacked, &places)
}

fn make(store: &Store, record: &Record) {
    for diff_id in &record.layers {
        if store.layer(diff_id).is_none() {
            publish(store, diff_id, 4096, 7).unwrap();
        }
    }
    file(&store.image_path(&record.id).unwrap(), record.file_bytes);
    store.add(record.clone()).unwrap();
}

fn store_with(directory: &Path, records: &[Record]) -> Arc<Store> {
    let store = open(directory);
    records.iter().for_each(|record| make(&store, record));
    store
}

/// A store after recovery.
fn open(directory: &Path) -> Arc<Store> {
    let store = Arc::new(Store::open(directory).unwrap());
    store.users_are_known().unwrap();
    store
}

fn count(directory: PathBuf) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn ids(store: &Store) -> Vec<String> {
    store.list().into_iter().map(|listed| listed.record.id).collect()
}

/// Counts of the directory: images, layers' files, blobs.
fn counts(store: &Store) -> (usize, usize, usize) {
    (count(store.images()), count(store.layers()), count(store.blobs()))
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
        assert_eq!(store.find(name).map(|found| found.record.id), Some(id('a')), "{name}");
    }
    assert!(store.find("host.io/a:3").is_none());
    assert!(store.find("NOT a name").is_none());
    assert!(store.find("sha256:c").is_none());
}

#[test]
fn lists_share_the_configs_of_images() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &[])]);
    let config = |listed: &Listed| Arc::clone(&listed.record.config);
    let (list, found) = (store.list(), store.find("host.io/a:1").unwrap());
    assert!(Arc::ptr_eq(&config(&list[0]), &config(&found)));
    assert_eq!((store.count(), list.len()), (1, 1));
}

#[test]
fn a_tag_that_moves_leaves_its_old_image_untagged() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &[]), record('b', "a:1", &[])]);
    assert!(store.known(&id('a')).unwrap().repo_tags.is_empty());
    assert_eq!(store.find("host.io/a:1").unwrap().record.id, id('b'));
}

#[test]
fn an_image_takes_its_own_file_and_each_layer_up_to_2_mib() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    publish(&store, &id('1'), 0, 0).unwrap_or_else(|_| panic!("a layer without contents"));
    publish(&store, &id('2'), 2 * MIB + 4096, 1).unwrap();
    assert!(!store.data_path(&id('1')).unwrap().exists(), "what is empty takes no place");
    make(&store, &record('a', "a:1", &['1', '2', '3']));
    assert_eq!(store.find("host.io/a:1").unwrap().range_bytes, (2 + 4 + 2) * MIB);
    let parts: Vec<_> = crate::opened::open(&store, &id('a'))
        .unwrap()
        .parts
        .iter()
        .map(|part| (part.offset / MIB, part.length / MIB))
        .collect();
    assert_eq!(parts, [(0, 2), (2, 4), (6, 2)]);
    store.data_path(&id('2')).map(|path| file(&path, 2 * MIB)).unwrap();
    let error = crate::opened::open(&store, &id('a')).unwrap_err();
    assert!(matches!(error, ImageError::Disk { .. }), "{error}");
}

#[test]
fn a_layer_goes_with_its_last_image_or_the_pull_that_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        store_with(directory.path(), &[record('a', "a:1", &['1', '2', '3']), record('b', "b:1", &['2'])]);
    let pins = store.pin(vec![id('3')]);
    store.remove(&id('a')).unwrap();
    assert!(
        store.layer(&id('1')).is_none() && store.layer(&id('2')).is_some() && store.layer(&id('3')).is_some()
    );
    assert_eq!(counts(&store), (1, 4, 0));
    drop(pins);
    store.remove(&id('b')).unwrap();
    store.remove(&id('b')).unwrap();
    assert!(store.list().is_empty());
    assert_eq!(counts(&store), (0, 0, 0));
}

#[test]
fn layers_that_a_removal_could_not_remove_go_with_its_repetition_or_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1', '2'])]);
    let stuck = store.data_path(&id('1')).unwrap();
    // A file cannot be removed as on a broken disk.
    let break_layer = || {
        fs::remove_file(&stuck).unwrap();
        fs::create_dir(&stuck).unwrap();
    };
    let mend_layer = || {
        fs::remove_dir(&stuck).unwrap();
        file(&stuck, 2 * MIB);
    };
    break_layer();
    store.remove(&id('a')).unwrap_err();
    assert!(store.list().is_empty());
    assert!(!store.data_path(&id('2')).unwrap().exists(), "what can go does");
    mend_layer();
    store.remove(&id('a')).unwrap();
    assert_eq!(counts(&store), (0, 0, 0));

    drop(store);
    let store = store_with(directory.path(), &[record('a', "a:1", &['1', '2'])]);
    break_layer();
    store.remove(&id('a')).unwrap_err();
    mend_layer();
    drop(store);
    assert_eq!(counts(&open(directory.path())), (0, 0, 0));
}

#[test]
fn a_start_that_finds_an_image_without_a_file_drops_it_and_the_layers_that_it_alone_had() {
    let directory = tempfile::tempdir().unwrap();
    let all = [record('a', "a:1", &['1']), record('b', "b:1", &['1', '2']), record('c', "c:1", &['3'])];
    let store = store_with(directory.path(), &all);
    // As after a kill between the file's removal and the index.
    fs::remove_file(store.image_path(&id('b')).unwrap()).unwrap();
    file(&store.data_path(&id('3')).unwrap(), 4096);
    // A tree is needed only by the next image. Existing images do without it.
    fs::remove_file(store.tree_path(&id('1')).unwrap()).unwrap();
    drop(store);
    let store = open(directory.path());
    assert_eq!(ids(&store), [id('a')]);
    assert_eq!(counts(&store), (1, 1, 0));
    assert_eq!(ids(&open(directory.path())), [id('a')]);
}

#[test]
fn an_image_is_removed_though_the_index_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &[])]);
    // As on a full disk: the new index cannot be made.
    let new = directory.path().join("images.new");
    fs::create_dir(&new).unwrap();
    store.remove(&id('a')).unwrap();
    assert!(store.known(&id('a')).is_none());
    assert_eq!(counts(&store), (1, 0, 0));
    drop(store);
    assert_eq!(ids(&open(directory.path())), [id('b')], "also where the disk is full still");
    fs::remove_dir(&new).unwrap();
    assert_eq!(ids(&open(directory.path())), [id('b')]);
}

#[test]
fn a_start_finds_its_images_again_and_clears_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &[])]);
    file(&store.image_path(&id('c')).unwrap(), 1);
    file(&store.data_path(&id('9')).unwrap(), 2 * MIB);
    fs::write(store.blobs().join(format!("{}.partial", "d".repeat(64))), b"resumable").unwrap();
    fs::create_dir_all(store.temporary().join("pull")).unwrap();
    fs::remove_file(store.image_path(&id('b')).unwrap()).unwrap();
    let before = store.known(&id('a'));
    drop(store);

    let store = open(directory.path());
    assert_eq!(store.known(&id('a')), before);
    assert!(store.known(&id('b')).is_none());
    assert_eq!(counts(&store), (1, 2, 1));
    assert_eq!(count(store.temporary()), 0);
    store.sweep(Duration::ZERO).unwrap();
    assert_eq!(counts(&store), (1, 2, 0));
}

#[test]
fn a_start_removes_the_config_left_by_a_kill_after_its_image_was_complete() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1'])]);
    let blob = |digit: char| store.blobs().join(digit.to_string().repeat(64));
    fs::write(blob('a'), b"config").unwrap();
    fs::write(blob('b'), b"of a pull to come").unwrap();
    let store_again = open(directory.path());
    assert!(!blob('a').exists() && blob('b').exists());
    assert_eq!(counts(&store_again), (1, 2, 1));
}

#[test]
fn layers_of_an_unfinished_pull_outlive_a_restart_for_a_day_and_go_with_the_next_removal() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1'])]);
    for layer in ['2', '3', '4', '5'] {
        publish(&store, &id(layer), 4096, 1).unwrap();
    }
    publish(&store, &id('6'), 0, 0).unwrap();
    let set_age = |layer: char, age: Duration| {
        let tree = File::options().append(true).open(store.tree_path(&id(layer)).unwrap()).unwrap();
        tree.set_modified(std::time::SystemTime::now() - age).unwrap();
    };
    set_age('1', 2 * RESUME_AGE);
    set_age('2', 2 * RESUME_AGE);
    set_age('5', RESUME_AGE / 2);
    fs::remove_file(store.data_path(&id('3')).unwrap()).unwrap();
    fs::remove_file(store.tree_path(&id('4')).unwrap()).unwrap();
    drop(store);

    let store = open(directory.path());
    let is_here = |layer: &char| store.layer_with_data(&id(*layer)).unwrap().is_some();
    let here = || ['1', '2', '3', '4', '5', '6'].into_iter().filter(is_here).collect::<String>();
    assert_eq!((here().as_str(), counts(&store)), ("156", (1, 5, 0)));
    make(&store, &record('b', "b:1", &['5']));
    // The end of a use makes no room.
    let lease = store.lease(&id('b')).unwrap();
    store.remove(&id('b')).unwrap();
    publish(&store, &id('7'), 4096, 1).unwrap();
    drop(lease);
    assert_eq!((here().as_str(), counts(&store)), ("1", (1, 4, 0)));
    let pins = store.pin(vec![id('7')]);
    store.remove(&id('a')).unwrap();
    assert_eq!(counts(&store), (0, 2, 0), "a running pull needs it");
    drop(pins);
    assert_eq!(counts(&open(directory.path())), (0, 2, 0));
    store.remove("none").unwrap();
    assert_eq!(counts(&store), (0, 0, 0));
}

#[test]
fn an_image_that_is_removed_while_it_is_used_is_seen_no_more_and_stays_until_the_last_use_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1', '2']), record('b', "b:1", &['2'])]);
    let (first, second) = (store.lease(&id('a')).unwrap(), store.lease(&id('a')).unwrap());
    store.remove(&id('a')).unwrap();
    assert!(store.find("host.io/a:1").is_none() && store.find(&id('a')).is_none());
    assert!(store.lease(&id('a')).is_none(), "nobody new may use it");
    assert_eq!(ids(&store), [id('b')]);
    drop(first);
    assert_eq!(counts(&store), (2, 4, 0));
    drop(second);
    assert_eq!(counts(&store), (1, 2, 0));
    assert!(store.known(&id('a')).is_none());
    assert_eq!(Index::read(&store.index_path()).unwrap().index, store.state().index);
}

#[test]
fn a_removed_image_that_is_pulled_again_is_the_one_that_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1'])]);
    let lease = store.lease(&id('a')).unwrap();
    store.remove(&id('a')).unwrap();
    assert!(store.known(&id('a')).is_some_and(|known| known.repo_tags.is_empty()));
    let again = store.add(record('a', "a:2", &['1'])).unwrap().record;
    assert_eq!(again.repo_tags, ["host.io/a:2"]);
    drop(lease);
    assert_eq!(counts(&store), (1, 2, 0));
}

#[test]
fn after_a_restart_nothing_of_a_removed_image_goes_before_its_users_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let all = [record('a', "a:1", &['1']), record('b', "b:1", &['2']), record('c', "c:1", &[])];
    let store = store_with(directory.path(), &all);
    let leases = [store.lease(&id('a')).unwrap(), store.lease(&id('b')).unwrap()];
    store.remove(&id('a')).unwrap();
    store.remove(&id('b')).unwrap();
    // The daemon is killed.
    leases.into_iter().for_each(std::mem::forget);
    drop(store);
    // Twice, the second time before the first daemon has found its pods.
    drop(Store::open(directory.path()).unwrap());
    let store = Arc::new(Store::open(directory.path()).unwrap());
    assert_eq!((ids(&store), counts(&store)), (vec![id('c')], (3, 4, 0)));
    store.remove(&id('c')).unwrap();
    assert_eq!((ids(&store).len(), counts(&store)), (0, (3, 4, 0)), "a pod may have it still");
    let lease = store.lease_again(&id('a')).unwrap();
    assert!(store.lease_again(&id('d')).is_none());
    store.users_are_known().unwrap();
    assert_eq!(counts(&store), (1, 2, 0));
    // The daemon ends, and its pods go on.
    store.forget_users();
    drop(lease);
    assert_eq!(counts(&store), (1, 2, 0));
    drop(store);
    assert_eq!(counts(&open(directory.path())), (0, 0, 0));
}

#[test]
fn a_layer_that_cannot_be_published_leaves_nothing_in_place_unless_it_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let without_tree = || {
        let at = |name: &str| store.temporary().join(name);
        let places = Places { data: at("data"), tree: at("none") };
        let (data, tree) = (file(&places.data, 2 * MIB), file(&at("tree"), 9));
        let unpacked = Unpacked { data, tree, content_bytes: 4096, tree_bytes: 9 };
        store.publish_layer(&id('1'), unpacked, &places)
    };
    without_tree().unwrap_err();
    assert_eq!(counts(&store), (0, 0, 0));
    publish(&store, &id('1'), 4096, 0).unwrap();
    without_tree().unwrap_err();
    assert_eq!(counts(&store), (0, 2, 0));
    assert!(store.layer_with_data(&id('1')).unwrap().is_some());
}

#[test]
fn a_layer_that_comes_again_keeps_the_contents_that_images_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1'])]);
    let inode = || {
        let path = store.data_path(&id('1')).unwrap();
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
    };
    let before = inode();
    publish(&store, &id('1'), 4096, 7).unwrap();
    assert_eq!(inode(), before);
    let error = publish(&store, &id('1'), 4096, 8).unwrap_err();
    assert!(crate::error::chain(&error).contains("remove the images with this layer"), "{error}");
    store.remove(&id('a')).unwrap();
    publish(&store, &id('1'), 4096, 8).unwrap();
}

#[test]
fn a_file_that_is_not_the_one_that_was_stored_is_not_given_to_a_guest_and_its_image_is_dropped_by_a_start() {
    // As on a file system with fs-verity. Here nothing is sealed, so each such file counts as replaced.
    let digest = || Some(crate::verity::VerityDigest("7".repeat(64)));
    for is_own in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with(directory.path(), &[record('a', "a:1", &['1']), record('b', "b:1", &['2'])]);
        {
            let mut state = store.state();
            if is_own {
                state.index.records.get_mut(&id('a')).unwrap().verity = digest();
            } else {
                state.index.layers.get_mut(&id('1')).unwrap().data_verity = digest();
            }
        }
        store.write_index().unwrap();
        let error = crate::opened::open(&store, &id('a')).unwrap_err();
        let text = crate::error::chain(&error);
        assert!(text.contains("it is not the stored file"), "{text}");
        crate::opened::open(&store, &id('b')).unwrap();
        // A pull of the image does not take the file for the image's either.
        let nameless = Record { file_bytes: 0, ..record('a', "a:2", &['1']) };
        assert!(matches!(store.add(nameless), Err(ImageError::Unknown(_))));
        drop(store);
        let store = open(directory.path());
        assert_eq!((ids(&store), counts(&store)), (vec![id('b')], (1, 2, 0)));
        make(&store, &record('a', "a:1", &['1']));
        crate::opened::open(&store, &id('a')).unwrap();
    }
}

#[test]
fn an_own_file_that_was_made_anew_is_the_images() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with(directory.path(), &[record('a', "a:1", &['1'])]);
    store.state().index.records.get_mut(&id('a')).unwrap().verity =
        Some(crate::verity::VerityDigest("7".repeat(64)));
    store.add(record('a', "a:2", &['1'])).unwrap();
    assert_eq!(store.known(&id('a')).unwrap().repo_tags, ["host.io/a:1", "host.io/a:2"]);
    crate::opened::open(&store, &id('a')).unwrap();
}

/// An index of version 1 with one image, and its files.
fn first_version(directory: &Path) {
    let (known, gone) = ("a".repeat(64), "b".repeat(64));
    fs::create_dir_all(directory.join("images")).unwrap();
    fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
    file(&directory.join(format!("images/{known}.erofs")), 4 * MIB);
    for hex in ["1", "2", "3"].map(|digit| digit.repeat(64)) {
        fs::write(directory.join("blobs/sha256").join(hex), b"blob").unwrap();
    }
    fs::write(directory.join("blobs/sha256").join(format!("{}.partial", "4".repeat(64))), b"part").unwrap();
    let mut config = serde_json::json!(DeclaredConfig::default());
    config["stop_signal"] = serde_json::Value::Null;
    let image = |hex: &str| {
        serde_json::json!({ "id": format!("sha256:{hex}"), "repo_tags": ["host.io/a:1"], "repo_digests": [],
            "size_bytes": 2 * MIB + 4096, "blobs": [id('1'), id('2')], "config": config })
    };
    let index =
        serde_json::json!({ "version": 1, "images": [image(&known), image(&gone)], "removed": [id('3')] });
    fs::write(directory.join("images.json"), index.to_string()).unwrap();
}

#[test]
fn images_of_version_1_stay_as_images_of_one_file_and_their_blobs_go() {
    let directory = tempfile::tempdir().unwrap();
    first_version(directory.path());
    let store = open(directory.path());
    let found = store.find("host.io/a:1").unwrap();
    assert_eq!((found.record.id, found.range_bytes), (id('a'), 4 * MIB));
    assert_eq!(counts(&store), (1, 0, 1), "what a pull may resume is left");
    assert_eq!(crate::opened::open(&store, &id('a')).unwrap().parts.len(), 1);
    drop(store);
    let text = fs::read_to_string(directory.path().join("images.json")).unwrap();
    assert!(text.contains("\"version\": 2") && !text.contains("blobs"), "{text}");
    let store = open(directory.path());
    assert_eq!(ids(&store), [id('a')]);
    store.remove(&id('a')).unwrap();
    assert_eq!(counts(&store), (0, 0, 1));
}

#[test]
fn an_index_that_cannot_be_read_is_not_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    let index = directory.path().join("images.json");
    let wrong =
        [&b"{"[..], br#"{"version":9,"images":[]}"#, br#"{"version":0,"images":[]}"#, br#"{"version":2}"#];
    for text in wrong {
        fs::write(&index, text).unwrap();
        assert!(matches!(Store::open(directory.path()), Err(ImageError::Disk { .. })));
        assert_eq!(fs::read(&index).unwrap(), text);
    }
}

/// Makes the index's next file a pipe, so a writer waits for a reader as for a frozen disk.
fn freeze(directory: &Path) -> PathBuf {
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
        drop(reading.lease(&id('a')));
        sender.0.send(found)
    });
    let answered = sender.1.recv_timeout(Duration::from_secs(60));
    thaw(&pipe);
    assert!(adding.join().unwrap().is_err(), "a pipe cannot be synced");
    assert_eq!(answered, Ok((2, true)));
    assert_eq!(store.known(&id('b')).unwrap().repo_tags, ["host.io/b:1"], "what is not on disk is not shown");
}

#[test]
fn a_kill_between_any_two_steps_leaves_whole_images_and_nothing_else() {
    // The files missing at the kill, besides those of an image with layer 2; whether the index names the
    // image; and whether the image is there afterwards.
    let own = |store: &Store| store.image_path(&id('a')).unwrap();
    let data = |store: &Store| store.data_path(&id('1')).unwrap();
    let tree = |store: &Store| store.tree_path(&id('1')).unwrap();
    type Gone<'a> = Vec<&'a dyn Fn(&Store) -> PathBuf>;
    let cases: [(Gone<'_>, bool, bool); 8] = [
        // A pull: data, tree, own file, index.
        (vec![&tree, &own], false, false),
        (vec![&own], false, false),
        (vec![], false, false),
        (vec![], true, true),
        // A removal: own file, data, tree, index.
        (vec![&own], true, false),
        (vec![&own, &data], true, false),
        (vec![&own, &data, &tree], true, false),
        (vec![&own, &data, &tree], false, false),
    ];
    for (number, (gone, is_indexed, is_whole)) in cases.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with(directory.path(), &[record('b', "b:1", &['2'])]);
        let before = fs::read(store.index_path()).unwrap();
        make(&store, &record('a', "a:1", &['1', '2']));
        if !is_indexed {
            fs::write(store.index_path(), before).unwrap();
        }
        gone.iter().for_each(|path| fs::remove_file(path(&store)).unwrap());
        drop(store);
        let store = open(directory.path());
        assert_eq!(store.find("host.io/a:1").is_some(), is_whole, "case {number}");
        assert!(store.find("host.io/b:1").is_some(), "case {number}");
        assert_eq!(counts(&store), if is_whole { (2, 4, 0) } else { (1, 2, 0) }, "case {number}");
        if !is_whole {
            make(&store, &record('a', "a:1", &['1', '2']));
        }
        assert_eq!(crate::opened::open(&store, &id('a')).unwrap().parts.len(), 3);
    }
}

mod walk;
