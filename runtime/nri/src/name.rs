//! Names and indexes of plugins (containerd/nri, `pkg/api/plugin.go`).

use std::fmt;
use std::sync::Arc;

/// Longest name of a plugin, equal to the longest file name.
const NAME_BYTES_MAX: usize = 255;

/// Characters of an index.
const INDEX_BYTES: usize = 2;

/// A plugin's index and name, as `NN-name`. Plugins are called in the order of their indexes. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginName(Arc<str>);

impl PluginName {
    /// The name of a registering plugin.
    ///
    /// # Errors
    /// The index is not two digits, or the name has characters other than letters, digits, `-`, `_`, `.` and
    /// `+`.
    pub fn new(index: &str, name: &str) -> Result<PluginName, String> {
        if index.len() != INDEX_BYTES || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("the index {:?} is not two digits", short(index)));
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            return Err(format!("{:?} is no name of a plugin", short(name)));
        }
        Ok(PluginName(format!("{index}-{name}").into()))
    }

    /// The name of the plugin in a file: `NN-name`.
    pub(crate) fn of_file(file: &str) -> Result<PluginName, String> {
        let (index, name) =
            file.split_once('-').ok_or_else(|| format!("{file:?} is not of the form NN-name"))?;
        PluginName::new(index, name)
    }

    /// The index, two digits.
    pub fn index(&self) -> &str {
        &self.0[..INDEX_BYTES]
    }

    /// The name without the index.
    pub fn name(&self) -> &str {
        &self.0[INDEX_BYTES + 1..]
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of a plugin's text, for messages.
pub(crate) fn short(text: &str) -> String {
    const CHARACTERS_MAX: usize = 1024;
    text.chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_two_digits_and_a_name_plain() {
        let name = PluginName::of_file("10-topology-aware_v1.2+x").unwrap();
        assert_eq!((name.index(), name.name()), ("10", "topology-aware_v1.2+x"));
        assert_eq!(name.to_string(), "10-topology-aware_v1.2+x");
        for bad in ["", "10", "1-a", "100-a", "x0-a", "10-", "10-a/b", "10-a b", "10-ä"] {
            assert!(PluginName::of_file(bad).is_err(), "{bad}");
        }
        assert!(PluginName::new("10", &"a".repeat(256)).is_err());
    }

    #[test]
    fn plugins_are_in_the_order_of_their_indexes() {
        let name = |file| PluginName::of_file(file).unwrap();
        let mut all = [name("90-a"), name("05-z"), name("05-b")];
        all.sort();
        assert_eq!(all.map(|name| name.to_string()), ["05-b", "05-z", "90-a"]);
    }
}
