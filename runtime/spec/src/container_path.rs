//! Paths inside a container. Pure.

use std::path::{Component, Path, PathBuf};

/// The path without `.` and `..`. A path above the root ends at the root.
pub(crate) fn normalized(path: &str) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}
