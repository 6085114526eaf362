//! File and folder names are one noun or verb; a vague name soon attracts everything.

use std::path::Path;

use crate::Source;

const BANNED: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc"];

/// One line for each file with a banned name, or in a folder with one.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<String> {
    let banned = |source: &&Source| {
        let path = Path::new(&source.path).with_extension("");
        path.iter().any(|part| BANNED.iter().any(|name| part == *name))
    };
    let found = sources.iter().filter(banned);
    found.map(|source| format!("{}: a name says what is inside", source.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_are_found_as_files_and_as_folders() {
        let paths = [
            "runtime/net/src/utils.rs",
            "vmm/common/src/lib.rs",
            "vmm/devices/src/manager.rs",
            "a/commonly.rs",
        ];
        let sources = paths.map(|path| Source { path: path.into(), text: String::new() });
        assert_eq!(check(&sources).len(), 3);
    }
}
