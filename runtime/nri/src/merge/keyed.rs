//! Lists and maps whose entries have keys, and marks before the keys of those that are to be removed.

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

/// Whoever asks, and for which container.
pub(super) struct Asking<'a> {
    pub(super) owners: &'a mut Owners,
    pub(super) container: &'a str,
    pub(super) plugin: &'a PluginName,
}

impl Asking<'_> {
    /// Notes that the plugin sets an entry of a field.
    pub(super) fn claim(&mut self, field: Field, key: &str) -> Result<(), NriError> {
        self.owners.claim(self.container, field, key, self.plugin)
    }

    /// Notes that the plugin removes an entry of a field.
    pub(super) fn clear(&mut self, field: Field, key: &str) {
        self.owners.clear(self.container, field, key, self.plugin);
    }

    /// Merges the entries that a plugin asks for into those that were asked for, and returns the keys that it removes or replaces.
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
        for key in &removed {
            self.clear(field, key);
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

    /// Merges a map, as [`Asking::list`] does a list; `seen` is what the container has.
    pub(super) fn map<T: Clone>(
        &mut self,
        field: Field,
        asked: &HashMap<String, T>,
        merged: &mut HashMap<String, T>,
        seen: &mut HashMap<String, T>,
    ) -> Result<(), NriError> {
        // In an order, so that of several conflicts always the same one is named.
        let asked: BTreeMap<&String, &T> = asked.iter().collect();
        for (key, value) in &asked {
            if let (plain, true) = without_mark(key) {
                self.clear(field, plain);
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
