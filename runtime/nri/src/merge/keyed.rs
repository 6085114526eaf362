//! Lists and maps of keyed entries. A mark before a key asks for the entry's removal.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proto_nri::nri::{Field, KeyValue, LinuxDevice, Mount};
use proto_nri::{REMOVAL_MARK, without_mark};

use super::owners::Owners;
use crate::error::NriError;
use crate::name::PluginName;

/// An entry of a list, with its key.
pub(super) trait Keyed: Clone {
    fn key(&self) -> &str;
}

impl Keyed for Mount {
    fn key(&self) -> &str {
        &self.destination
    }
}

impl Keyed for LinuxDevice {
    fn key(&self) -> &str {
        &self.path
    }
}

impl Keyed for KeyValue {
    fn key(&self) -> &str {
        &self.key
    }
}

/// The asking plugin, and the container of its answer.
pub(super) struct Asking<'a> {
    pub(super) owners: &'a mut Owners,
    pub(super) container: &'a str,
    pub(super) plugin: &'a PluginName,
}

impl Asking<'_> {
    /// Records that the plugin sets an entry of a field.
    pub(super) fn claim(&mut self, field: Field, key: &str) -> Result<(), NriError> {
        self.owners.claim(self.container, field, key, self.plugin)
    }

    /// Records the plugin's removal of an entry of a field.
    pub(super) fn clear(&mut self, field: Field, key: &str) {
        self.owners.clear(self.container, field, key, self.plugin);
    }

    /// Merges a plugin's entries into those of earlier plugins. Returns the keys it removes or sets. As in
    /// NRI (`pkg/adaptation/result.go`), a removed entry has an owner only if an earlier plugin had set it.
    pub(super) fn list<T: Keyed>(
        &mut self,
        field: Field,
        asked: &[T],
        merged: &mut Vec<T>,
    ) -> Result<BTreeSet<String>, NriError> {
        let keys = |marked: bool| -> BTreeSet<String> {
            let all = asked.iter().map(|entry| without_mark(entry.key()));
            all.filter(|(_, is_marked)| *is_marked == marked).map(|(key, _)| key.to_owned()).collect()
        };
        let (removed, set) = (keys(true), keys(false));
        for entry in merged.iter().filter(|entry| removed.contains(entry.key())) {
            self.clear(field, entry.key());
        }
        merged.retain(|entry| !removed.contains(without_mark(entry.key()).0));
        for entry in asked {
            let (key, is_marked) = without_mark(entry.key());
            if !is_marked {
                self.claim(field, key)?;
            }
            merged.push(entry.clone());
        }
        Ok(&removed | &set)
    }

    /// Merges a map, like [`Asking::list`] does for a list. `seen` holds the container's own entries. As in
    /// NRI, a removed entry has an owner only if the same answer sets it.
    pub(super) fn map<T: Clone>(
        &mut self,
        field: Field,
        asked: &HashMap<String, T>,
        merged: &mut HashMap<String, T>,
        seen: &mut HashMap<String, T>,
    ) -> Result<(), NriError> {
        // Sorted, so that the same one of several conflicts is always named.
        let asked: BTreeMap<&String, &T> = asked.iter().collect();
        for (key, value) in &asked {
            if let (plain, true) = without_mark(key) {
                if asked.contains_key(&plain.to_owned()) {
                    self.clear(field, plain);
                }
                merged.remove(plain);
                seen.remove(plain);
                merged.insert(format!("{REMOVAL_MARK}{plain}"), (*value).clone());
            }
        }
        for (key, value) in asked {
            if !without_mark(key).1 {
                self.claim(field, key)?;
                merged.insert(key.clone(), value.clone());
                seen.insert(key.clone(), value.clone());
            }
        }
        Ok(())
    }
}
