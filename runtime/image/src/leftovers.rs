//! Unreferenced files in an image directory, seen from outside: no daemon runs on it, or another process
//! does. Nothing is removed here. A starting daemon removes the same files (`store.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::ImageError;
use crate::store::{RESUME_AGE, Store};

/// The inconsistencies of an image directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Files and directories referenced by no image.
    pub files: Vec<PathBuf>,
    /// Ids of images without their file.
    pub missing: Vec<String>,
}

/// Checks an image directory. A file counts if it was not written for the time `untouched`. Blobs without an
/// image are kept for a day on purpose, and count only after this time. Blocks on the disk.
///
/// # Errors
/// [`ImageError::Disk`], also if the index cannot be read.
pub fn leftovers(directory: &Path, untouched: Duration) -> Result<Leftovers, ImageError> {
    let store = Store::at(directory);
    let mut index = store.read_index()?;
    // Their age counts, as for files without a record.
    let unfinished = std::mem::take(&mut index.unfinished);
    index.layers.retain(|diff_id, _| !unfinished.contains(diff_id));
    let known = store.known_files(&index);
    let is_nobodys = |path: &PathBuf| !known.contains(path);
    let missing = index.records.values().filter(|record| !store.has_files(&index, record));
    let mut found = Vec::new();
    found.extend(old_entries(&store.temporary(), untouched));
    found.extend(old_entries(&store.images(), untouched).filter(is_nobodys));
    // These may belong to a running pull. After a failed one, the next attempt can use them.
    let of_pulls = untouched.max(RESUME_AGE);
    found.extend(old_entries(&store.layers(), of_pulls).filter(is_nobodys));
    found.extend(old_entries(&store.blobs(), of_pulls));
    found.sort();
    Ok(Leftovers { files: found, missing: missing.map(|record| record.id.clone()).collect() })
}

fn old_entries(directory: &Path, age: Duration) -> impl Iterator<Item = PathBuf> {
    let is_old = move |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        // A modification time in the future counts as age zero.
        modified.is_ok_and(|time| time.elapsed().unwrap_or_default() >= age)
    };
    fs::read_dir(directory).into_iter().flatten().flatten().filter(is_old).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;
    use crate::config::DeclaredConfig;

    #[test]
    fn what_no_image_names_is_found_and_what_a_pull_may_be_at_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(leftovers(&dir.path().join("none"), Duration::ZERO).unwrap(), Leftovers::default());
        let (known, lost, stray, kept) = ("a".repeat(64), "b".repeat(64), "c".repeat(64), "e".repeat(64));
        let record = |hex: &str| {
            serde_json::json!({
                "id": format!("sha256:{hex}"), "repo_tags": [], "repo_digests": [], "size_bytes": 1,
                "file_bytes": 2 << 20, "layers": [format!("sha256:{hex}")], "config": DeclaredConfig::default()
            })
        };
        let layer = serde_json::json!({ "content_bytes": 4096, "tree_bytes": 1 });
        let layers: serde_json::Map<_, _> =
            [&known, &lost, &kept].map(|hex| (format!("sha256:{hex}"), layer.clone())).into_iter().collect();
        let index = serde_json::json!({
            "version": 2, "images": [record(&known), record(&lost)], "removed": [record(&kept)], "layers": layers
        });
        fs::write(dir.path().join("images.json"), index.to_string()).unwrap();
        let make = |name: String, age: u64| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(&path).unwrap();
            file.set_len(2 << 20).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            path
        };
        let week = 7 * 24 * 3600;
        for hex in [&known, &kept] {
            make(format!("images/{hex}.erofs"), week);
            make(format!("layers/{hex}.data"), week);
            make(format!("layers/{hex}.tree"), week);
        }
        make(format!("layers/{lost}.data"), week);
        make(format!("layers/{}.data", "d".repeat(64)), 7200);
        make(format!("blobs/sha256/{}", "d".repeat(64)), 7200);
        let mut nobodys = vec![
            make(format!("images/{stray}.erofs"), week),
            make(format!("layers/{stray}.data"), week),
            make(format!("layers/{stray}.tree"), week),
            make(format!("blobs/sha256/{stray}"), week),
            make(format!("blobs/sha256/{stray}.partial"), week),
        ];
        let recent = make("tmp/pull".into(), 60);
        nobodys.sort();
        let found = leftovers(dir.path(), Duration::from_secs(3600)).unwrap();
        assert_eq!(found.files, nobodys);
        assert_eq!(found.missing, [format!("sha256:{lost}")]);
        assert!(leftovers(dir.path(), Duration::ZERO).unwrap().files.contains(&recent));
    }
}
