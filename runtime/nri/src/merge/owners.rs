//! The owning plugin of each field of each container.

use std::collections::HashMap;

use proto_nri::REMOVAL_MARK;
use proto_nri::nri::{CompoundFieldOwners, Field, FieldOwners, OwningPlugins};

use crate::error::NriError;
use crate::name::PluginName;

/// A field of a container, and its entry if the field has several.
type Place = (String, i32, String);

/// A plugin that has set or removed a field.
#[derive(Clone, Debug)]
struct Owner {
    plugin: PluginName,
    has_removed: bool,
}

/// The owners of all fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    of: HashMap<Place, Owner>,
    /// Hooks add up, so they may have several owners.
    hooks: HashMap<String, Vec<PluginName>>,
}

impl Owners {
    /// Records that the plugin sets an entry of a field. `key` is empty if the field has no entries.
    pub(crate) fn claim(
        &mut self,
        container: &str,
        field: Field,
        key: &str,
        plugin: &PluginName,
    ) -> Result<(), NriError> {
        let place = (container.to_owned(), field as i32, key.to_owned());
        if let Some(owner) = self.of.get(&place)
            && !(owner.has_removed && owner.plugin == *plugin)
        {
            return Err(NriError::Conflict {
                first: owner.plugin.clone(),
                second: plugin.clone(),
                field,
                key: crate::name::short(key),
                container: container.to_owned(),
            });
        }
        self.of.insert(place, Owner { plugin: plugin.clone(), has_removed: false });
        Ok(())
    }

    /// Records the plugin's removal of an entry. The plugin may set it afterwards.
    pub(crate) fn clear(&mut self, container: &str, field: Field, key: &str, plugin: &PluginName) {
        let place = (container.to_owned(), field as i32, key.to_owned());
        self.of.insert(place, Owner { plugin: plugin.clone(), has_removed: true });
    }

    /// Records hooks added by the plugin.
    pub(crate) fn add_hooks(&mut self, container: &str, plugin: &PluginName) {
        self.hooks.entry(container.to_owned()).or_default().push(plugin.clone());
    }

    /// The owners in the form sent to validating plugins.
    pub(crate) fn message(&self) -> OwningPlugins {
        let mut all: HashMap<String, FieldOwners> = HashMap::new();
        for ((container, field, key), owner) in &self.of {
            let mark = if owner.has_removed { String::from(REMOVAL_MARK) } else { String::new() };
            let plugin = format!("{mark}{}", owner.plugin);
            let fields = all.entry(container.clone()).or_default();
            if key.is_empty() {
                fields.simple.insert(*field, plugin);
            } else {
                let compound: &mut CompoundFieldOwners = fields.compound.entry(*field).or_default();
                compound.owners.insert(key.clone(), plugin);
            }
        }
        for (container, plugins) in &self.hooks {
            let names: Vec<String> = plugins.iter().map(PluginName::to_string).collect();
            let fields = all.entry(container.clone()).or_default();
            fields.simple.insert(Field::OciHooks as i32, names.join(","));
        }
        OwningPlugins { owners: all, ..Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(file: &str) -> PluginName {
        PluginName::of_file(file).unwrap()
    }

    #[test]
    fn an_entry_has_one_owner_unless_the_next_has_removed_it_first() {
        let (a, b) = (plugin("01-a"), plugin("02-b"));
        let mut owners = Owners::default();
        owners.claim("c", Field::Env, "X", &a).unwrap();
        owners.claim("c", Field::Env, "Y", &b).unwrap();
        owners.claim("d", Field::Env, "X", &b).unwrap();
        let conflict = owners.claim("c", Field::Env, "X", &b).unwrap_err().to_string();
        assert_eq!(conflict, "NRI plugins 01-a and 02-b both set Env \"X\" of container c");
        owners.clear("c", Field::Env, "X", &b);
        assert!(owners.claim("c", Field::Env, "X", &a).is_err());
        owners.claim("c", Field::Env, "X", &b).unwrap();
    }

    #[test]
    fn owners_are_shown_to_those_that_validate() {
        let mut owners = Owners::default();
        owners.claim("c", Field::MemLimit, "", &plugin("01-a")).unwrap();
        owners.clear("c", Field::Mounts, "/m", &plugin("02-b"));
        owners.add_hooks("c", &plugin("01-a"));
        owners.add_hooks("c", &plugin("02-b"));
        let fields = &owners.message().owners["c"];
        assert_eq!(fields.simple[&(Field::MemLimit as i32)], "01-a");
        assert_eq!(fields.simple[&(Field::OciHooks as i32)], "01-a,02-b");
        assert_eq!(fields.compound[&(Field::Mounts as i32)].owners["/m"], "-02-b");
    }
}
