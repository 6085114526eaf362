//! Files in an image directory that nothing names, seen from outside: no daemon runs on it, or another process does. Nothing is removed here; a daemon's start removes the same, by `store.rs`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::ImageError;
use crate::store::{RESUME_AGE, Store};

/// The end of the name of a blob that is not whole.
const PARTIAL: &str = ".partial";

/// The disorder in an image directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Files and directories that no image names.
    pub files: Vec<PathBuf>,
    /// Ids of images without their file.
    pub missing: Vec<String>,
}

/// Looks at an image directory. Files count that were not written for the time `untouched`; blobs without an image are
/// kept for a day on purpose, and count after that. Blocks on the disk.
///
/// # Errors
/// [`ImageError::Disk`], also for an index that cannot be read.
pub fn leftovers(directory: &Path, untouched: Duration) -> Result<Leftovers, ImageError> {
    let store = Store::at(directory);
    let records = store.read_index()?;
    let files: HashSet<PathBuf> = records.iter().filter_map(|record| store.image_path(&record.id)).collect();
    let blobs: HashSet<&str> = records
        .iter()
        .flat_map(|record| &record.blobs)
        .filter_map(|blob| blob.strip_prefix("sha256:"))
        .collect();
    let is_blob = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        blobs.contains(name.strip_suffix(PARTIAL).unwrap_or(name))
    };
    let missing =
        records.iter().filter(|record| !store.image_path(&record.id).is_some_and(|path| path.is_file()));
    let mut found = Vec::new();
    found.extend(old_entries(&store.temporary(), untouched));
    found.extend(old_entries(&store.images(), untouched).filter(|path| !files.contains(path)));
    found.extend(old_entries(&store.blobs(), untouched.max(RESUME_AGE)).filter(|path| !is_blob(path)));
    found.sort();
    Ok(Leftovers { files: found, missing: missing.map(|record| record.id.clone()).collect() })
}

fn old_entries(directory: &Path, age: Duration) -> impl Iterator<Item = PathBuf> {
    let is_old = move |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        // A time to come is no age.
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
        let (known, lost, stray) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        let record = |hex: &str| {
            serde_json::json!({
                "id": format!("sha256:{hex}"), "repo_tags": [], "repo_digests": [], "size_bytes": 1,
                "blobs": [format!("sha256:{hex}")], "config": DeclaredConfig::default()
            })
        };
        let index = serde_json::json!({ "version": 1, "images": [record(&known), record(&lost)] });
        fs::write(dir.path().join("images.json"), index.to_string()).unwrap();
        let make = |name: String, age: u64| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            path
        };
        let week = 7 * 24 * 3600;
        make(format!("images/{known}.erofs"), week);
        make(format!("blobs/sha256/{known}"), week);
        make(format!("blobs/sha256/{known}.partial"), week);
        make(format!("blobs/sha256/{}", "d".repeat(64)), 7200);
        let mut nobodys = vec![
            make(format!("images/{stray}.erofs"), week),
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
