//! The values of a namespace's sysctls. There are some 700, read once after each plugin of each pod, and they
//! rarely change. Each directory is therefore one string, compared as a whole.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values by their directories below `/proc/sys`: `net/ipv4/conf/all`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values(BTreeMap<String, Directory>);

impl Values {
    /// Adds a directory with its values.
    pub(super) fn insert(&mut self, path: String, directory: Directory) {
        self.0.insert(path, directory);
    }

    /// Returns true if there is a sysctl with this full path.
    pub(super) fn contains(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(directory, name)| self.get(directory, name).is_some())
    }

    /// Returns the value of a sysctl in this directory.
    pub(super) fn get(&self, directory: &str, name: &str) -> Option<&str> {
        self.directory(directory)?.get(name)
    }

    /// Returns the sysctls of this directory.
    pub(super) fn directory(&self, path: &str) -> Option<&Directory> {
        self.0.get(path)
    }

    /// Returns the directories, with their paths, that differ from those in `before`.
    pub(super) fn unlike<'a>(&'a self, before: &'a Values) -> impl Iterator<Item = (&'a str, &'a Directory)> {
        let unlike =
            |(path, directory): &(&'a String, &'a Directory)| before.0.get(*path) != Some(*directory);
        self.0.iter().filter(unlike).map(|(path, directory)| (path.as_str(), directory))
    }
}

impl FromIterator<(String, String)> for Values {
    /// Collects whole paths with their values.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Values {
        let mut values = Values::default();
        for (path, value) in all {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
            values.0.entry(directory.to_owned()).or_default().push(name, &value);
        }
        values.0.values_mut().for_each(Directory::sort);
        values
    }
}

/// The sysctls of one directory: names and values, ordered by name once they are [sorted](Self::sort).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    /// Each name followed by its value.
    text: String,
    entries: Vec<Entry>,
}

/// A sysctl's place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Directory {
    pub(super) fn push(&mut self, name: &str, value: &str) {
        let start = self.text.len();
        self.text.push_str(name);
        let name_end = self.text.len();
        self.text.push_str(value);
        self.entries.push(Entry { start, name_end, end: self.text.len() });
    }

    /// Sorts the sysctls by name. Lookup and comparison need this.
    pub(super) fn sort(&mut self) {
        if !self.iter().map(|(name, _)| name).is_sorted() {
            let mut all: Vec<(&str, &str)> = self.iter().collect();
            all.sort_unstable();
            let mut sorted = Directory::default();
            all.into_iter().for_each(|(name, value)| sorted.push(name, value));
            *self = sorted;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|entry| (self.at(entry.start..entry.name_end), self.at(entry.name_end..entry.end)))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.entries.binary_search_by(|entry| self.at(entry.start..entry.name_end).cmp(name));
        found.ok().map(|place| self.at(self.entries[place].name_end..self.entries[place].end))
    }

    fn at(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_value_is_found_by_its_path_in_whatever_order_it_was_read() {
        let one = values(&[("net/b", "1"), ("net/core/a", "2"), ("net/a", "3")]);
        assert_eq!(one, values(&[("net/a", "3"), ("net/core/a", "2"), ("net/b", "1")]));
        assert_eq!(
            (one.get("net", "a"), one.get("net", "b"), one.get("net", "c")),
            (Some("3"), Some("1"), None)
        );
        assert!(one.contains("net/core/a") && !one.contains("net/core") && !one.contains("a"));
    }

    #[test]
    fn names_and_values_do_not_run_into_each_other() {
        assert_ne!(values(&[("net/ab", "c")]), values(&[("net/a", "bc")]));
    }

    #[test]
    fn directories_that_changed_are_found_and_those_that_did_not_are_not() {
        let before = values(&[("net/a", "1"), ("net/core/a", "2"), ("net/gone/a", "3")]);
        let after = values(&[("net/a", "1"), ("net/core/a", "5"), ("net/new/a", "4")]);
        let unlike: Vec<_> = after.unlike(&before).map(|(path, _)| path).collect();
        assert_eq!(unlike, ["net/core", "net/new"]);
    }
}
