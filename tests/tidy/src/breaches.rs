//! Breaches by their folder or crate.

use std::collections::BTreeMap;

use crate::Source;

/// The breaches, by folder or crate.
pub type Breaches = BTreeMap<String, Vec<String>>;

/// The breaches of all sources, by the folder of a crate.
pub fn by_folder(sources: &[Source], check: impl Fn(&Source) -> Vec<String>) -> Breaches {
    let mut found = Breaches::new();
    for source in sources {
        let lines = check(source);
        if !lines.is_empty() {
            let folder: Vec<_> = source.path.split('/').take(2).collect();
            found.entry(folder.join("/")).or_default().extend(lines);
        }
    }
    found
}
