//! Images by their names, as of the index. Never asks a registry.

use super::{Listed, Record, Store};
use crate::name::{Name, id_prefix};

impl Store {
    /// Finds an image by tag, digest name, id or short id.
    pub(crate) fn find(&self, name: &str) -> Option<Listed> {
        let state = self.state();
        let records = &state.index.records;
        let listed = |record| Listed::new(&state.index, record);
        if let Some(prefix) = id_prefix(name) {
            let mut matching = records.values().filter(|record| prefix.is_of(&record.id));
            if let (Some(record), None) = (matching.next(), matching.next()) {
                return Some(listed(record));
            }
        }
        let whole = Name::parse(name).ok()?.whole();
        records
            .values()
            .find(|record| record.repo_tags.contains(&whole) || record.repo_digests.contains(&whole))
            .map(listed)
    }

    /// Returns true if a listed image may be the one of this name: it has the name's digest, or it came from
    /// the repository of the name's tag.
    pub(crate) fn may_have(&self, name: &Name) -> bool {
        let wanted = name.repo_digest(name.reference.digest().unwrap_or_default());
        let is_wanted = |digest: &String| match name.reference.digest() {
            Some(_) => *digest == wanted,
            None => digest.starts_with(&wanted),
        };
        self.state().index.records.values().any(|record| record.repo_digests.iter().any(is_wanted))
    }

    /// Returns the listed image with this digest name. `None` if there are several: an index may have given
    /// another image to an earlier processor.
    pub(crate) fn only_with(&self, repo_digest: &str) -> Option<Record> {
        let state = self.state();
        let has_name = |record: &&Record| record.repo_digests.iter().any(|digest| digest == repo_digest);
        let mut matching = state.index.records.values().filter(has_name);
        matching.next().filter(|_| matching.next().is_none()).cloned()
    }
}
