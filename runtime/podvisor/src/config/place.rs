//! The places of keys in the file's text. Nothing here knows the valid keys. A text with errors has the
//! places found so far.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys with their places, in no particular order.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    /// Key as in `paths.state`, and for repeated tables as in `handler[0].name`.
    key: String,
    /// Line number of the key, from 1 on.
    line: usize,
    /// Bytes of the text from the key to the end of its value.
    bytes: Range<usize>,
}

impl Places {
    /// Finds the keys of all tables.
    pub(super) fn of(text: &str) -> Places {
        let (table, _) = DeTable::parse_recoverable(text);
        let lines = Lines::of(text);
        let mut places = Vec::new();
        for (name, value) in table.get_ref() {
            let section = name.get_ref();
            match value.get_ref() {
                DeValue::Table(table) => add(&mut places, &lines, section, table),
                DeValue::Array(several) => {
                    for (index, one) in several.iter().enumerate() {
                        if let DeValue::Table(table) = one.get_ref() {
                            add(&mut places, &lines, &format!("{section}[{index}]"), table);
                        }
                    }
                }
                _ => {}
            }
            places.push(place(&lines, section.to_string(), &name.span(), value));
        }
        Places(places)
    }

    /// The line of a key.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.0.iter().find(|place| place.key == key).map(|place| place.line)
    }

    /// The key around this byte of the text. Of several it is the one with the shortest text.
    pub(super) fn key_at(&self, byte: usize) -> Option<&str> {
        let around = self.0.iter().filter(|place| place.bytes.contains(&byte));
        around.min_by_key(|place| place.bytes.len()).map(|place| place.key.as_str())
    }
}

fn add(places: &mut Vec<Place>, lines: &Lines, section: &str, table: &DeTable<'_>) {
    for (name, value) in table {
        places.push(place(lines, format!("{section}.{}", name.get_ref()), &name.span(), value));
    }
}

fn place(lines: &Lines, key: String, name: &Range<usize>, value: &Spanned<DeValue<'_>>) -> Place {
    Place { key, line: lines.at(name.start), bytes: name.start..value.span().end.max(name.end) }
}

/// The ends of a text's lines, in ascending order.
#[derive(Debug)]
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        Lines(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line number of this byte of the text, from 1 on.
    pub(super) fn at(&self, byte: usize) -> usize {
        self.0.partition_point(|end| *end < byte) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_line_however_it_is_written() {
        let text = "paths.run = \"/r\"\n\n[cni]\nbin_dirs = [\n  \"/a\",\n]\n\"conf_dir\" = \"/c\" # here\n\
                    [[handler]]\nname = \"a\"\n[[handler]]\n\nname = \"b\"\n";
        let places = Places::of(text);
        for (key, line) in [
            ("paths.run", 1),
            ("cni.bin_dirs", 4),
            ("cni.conf_dir", 7),
            ("handler[0].name", 9),
            ("handler[1].name", 12),
        ] {
            assert_eq!(places.line(key), Some(line), "{key}");
        }
        assert_eq!(places.line("paths.state"), None);
        assert_eq!(places.key_at(text.find("/a").unwrap()), Some("cni.bin_dirs"));
        let inline = Places::of("log = { level = \"info\" }\n");
        assert_eq!(inline.line("log.level"), Some(1));
    }

    #[test]
    fn a_text_that_is_no_toml_has_the_places_before_its_error_at_least() {
        let text = "[paths]\nstate = \"/x\"\nrun = \"/y\n[cni\n\u{0}";
        assert_eq!(Places::of(text).line("paths.state"), Some(2));
        for text in ["", "\n\n", "]]]", "= = =", "[[[", "\u{feff}"] {
            assert_eq!(Places::of(text).line("paths.state"), None);
        }
    }
}
