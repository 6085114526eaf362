//! Reads JSON like Go's `encoding/json`, because every builder and registry is written against it: names in
//! any case, null for empty values, unknown fields, and repeated names. Owns this parsing; callers interpret
//! the fields.
//!
//! | document | read as |
//! |---|---|
//! | a name in another case, or with `ſ` and `K` for s and k | the name |
//! | a name several times | the last value; objects are put together |
//! | null | nothing was said; an empty list, where a list is wanted |
//! | half a surrogate pair, bytes that are no UTF-8 | U+FFFD |
//!
//! Nothing is copied until it is requested, so a document costs only its own bytes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// One value of a document with checked syntax.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// Checks a document. It must be exactly one value.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Json<'a>, String> {
        serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| error.to_string())?;
        Ok(Json(bytes.trim_ascii_start()))
    }

    /// Checks the first value and ignores the rest.
    pub(crate) fn first(bytes: &'a [u8]) -> Result<Json<'a>, String> {
        let mut document = serde_json::Deserializer::from_slice(bytes);
        IgnoredAny::deserialize(&mut document).map_err(|error| error.to_string())?;
        Ok(Json(value(bytes.trim_ascii_start()).0))
    }

    fn is_null(self) -> bool {
        self.0.starts_with(b"n")
    }

    fn kind(self) -> &'static str {
        match self.0.first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "a text",
            Some(b't' | b'f') => "a truth value",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    /// Returns the fields of an object; null has none.
    pub(crate) fn fields(self) -> Result<Fields<'a>, String> {
        match self.0.first() {
            Some(b'{') => Ok(Fields(vec![self])),
            Some(b'n') => Ok(Fields::default()),
            _ => Err(format!("{} where an object is wanted", self.kind())),
        }
    }

    /// Returns the items of a list; null has none.
    pub(crate) fn items(self) -> Result<Vec<Json<'a>>, String> {
        match self.0.first() {
            Some(b'[') => Ok(parts(self.0).map(|(item, _)| Json(item)).collect()),
            Some(b'n') => Ok(Vec::new()),
            _ => Err(format!("{} where a list is wanted", self.kind())),
        }
    }

    fn text(self) -> Result<String, String> {
        match self.0.first() {
            Some(b'"') => Ok(unquoted(value(self.0).0)),
            Some(b'n') => Ok(String::new()),
            _ => Err(format!("{} where a text is wanted", self.kind())),
        }
    }

    fn integer(self) -> Result<i64, String> {
        let text = String::from_utf8_lossy(value(self.0).0);
        match self.kind() {
            "a number" => text.parse().map_err(|_| {
                let shown: String = text.chars().take(40).collect();
                format!("{shown} where a whole number of 64 bits is wanted")
            }),
            other => Err(format!("{other} where a number is wanted")),
        }
    }

    /// Returns a number, also one written as a text or with a fraction.
    pub(crate) fn number(self) -> Option<f64> {
        match self.0.first() {
            Some(b'"') => self.text().ok()?.trim().parse().ok(),
            _ => std::str::from_utf8(value(self.0).0).ok()?.parse().ok(),
        }
    }

    /// Returns the names and values of an object, in document order.
    fn entries(self) -> impl Iterator<Item = (&'a [u8], Json<'a>)> {
        parts(self.0).filter_map(|(name, value)| Some((name, Json(value?))))
    }
}

/// The fields of an object, or of several merged objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields<'a>(Vec<Json<'a>>);

impl<'a> Fields<'a> {
    /// Returns the values of this name, in document order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = Json<'a>> {
        let entries = self.0.iter().flat_map(|object| object.entries());
        entries.filter(move |(key, _)| is_named(key, name)).map(|(_, value)| value)
    }

    /// Returns true if this name has a value other than null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values(name).any(|value| !value.is_null())
    }

    fn said<T>(&self, name: &str, read: impl Fn(Json<'a>) -> Result<T, String>) -> Result<Option<T>, String> {
        let mut last = None;
        for value in self.values(name).filter(|value| !value.is_null()) {
            last = Some(read(value).map_err(|wrong| format!("{name}: {wrong}"))?);
        }
        Ok(last)
    }

    /// Returns a text; empty if absent.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        Ok(self.said(name, Json::text)?.unwrap_or_default())
    }

    /// Returns a whole number.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        self.said(name, Json::integer)
    }

    /// Returns a list; empty if absent.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<Json<'a>>, String> {
        let mut last = Vec::new();
        for value in self.values(name) {
            last = value.items().map_err(|wrong| format!("{name}: {wrong}"))?;
        }
        Ok(last)
    }

    /// Returns a list of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let text = |item: Json<'a>| item.text().map_err(|wrong| format!("{name}: {wrong}"));
        self.list(name)?.into_iter().map(text).collect()
    }

    /// Returns an object; without fields if absent.
    pub(crate) fn object(&self, name: &str) -> Result<Fields<'a>, String> {
        let mut all = Vec::new();
        for value in self.values(name) {
            all.extend(value.fields().map_err(|wrong| format!("{name}: {wrong}"))?.0);
        }
        Ok(Fields(all))
    }

    /// Returns an object as a map. Its names are not fields: each is distinct and case-sensitive.
    pub(crate) fn map(&self, name: &str) -> Result<BTreeMap<String, Json<'a>>, String> {
        let mut all = BTreeMap::new();
        for value in self.values(name) {
            if value.is_null() {
                all.clear();
            }
            let fields = value.fields().map_err(|wrong| format!("{name}: {wrong}"))?;
            for (key, value) in fields.0.iter().flat_map(|object| object.entries()) {
                all.insert(unquoted(key), value);
            }
        }
        Ok(all)
    }

    /// Returns a map of texts.
    pub(crate) fn text_map(&self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let text = |(key, value): (String, Json<'a>)| match value.text() {
            Ok(text) => Ok((key, text)),
            Err(wrong) => Err(format!("{name}: {wrong}")),
        };
        self.map(name)?.into_iter().map(text).collect()
    }
}

/// Returns true if a quoted name matches this one, ignoring case.
fn is_named(quoted: &[u8], name: &str) -> bool {
    // Most names have no escape and the same length in bytes.
    if quoted.len() == name.len() + 2 && !quoted.contains(&b'\\') {
        return quoted[1..quoted.len() - 1].eq_ignore_ascii_case(name.as_bytes());
    }
    // An escape takes six bytes for one.
    if quoted.len() > name.len() * 6 + 2 {
        return false;
    }
    let fold = |letter: char| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    unquoted(quoted).chars().map(fold).eq(name.chars().map(fold))
}

/// Returns the first value of these bytes, and the rest.
fn value(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_length(&bytes[at..]) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return bytes.split_at(at),
            b'}' | b']' => depth -= 1,
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return bytes.split_at(at),
            // Part of a number or word.
            _ if depth == 0 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    bytes.split_at(at.min(bytes.len()))
}

/// Returns the length of the text starting here, including both quotes.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The parts of a list or an object: items, or names with their values.
fn parts(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut rest = bytes.get(1..).unwrap_or_default();
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        if matches!(rest.first(), None | Some(b']' | b'}')) {
            return None;
        }
        let (first, after) = value(rest);
        rest = after.trim_ascii_start();
        let Some(after) = rest.strip_prefix(b":") else { return Some((first, None)) };
        let (second, after) = value(after.trim_ascii_start());
        rest = after;
        Some((first, Some(second)))
    })
}

/// Decodes the text between quotes.
fn unquoted(quoted: &[u8]) -> String {
    let mut rest = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let mut text = Vec::with_capacity(rest.len());
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        text.extend_from_slice(&rest[..at]);
        let (letter, after) = escaped(&rest[at + 1..]);
        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        rest = after;
    }
    text.extend_from_slice(rest);
    match String::from_utf8(text) {
        Ok(text) => text,
        Err(broken) => repaired(broken.as_bytes()),
    }
}

fn repaired(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Decodes one escape. Returns its letter and the rest.
fn escaped(bytes: &[u8]) -> (char, &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return (char::REPLACEMENT_CHARACTER, bytes) };
    let letter = match kind {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(rest),
        other => char::from(*other),
    };
    (letter, rest)
}

/// Decodes the letter of `XXXX`, or of `XXXX\uXXXX` if the two are a surrogate pair.
fn unicode(bytes: &[u8]) -> (char, &[u8]) {
    let unit = |bytes: &[u8]| {
        let digits = std::str::from_utf8(bytes.get(..4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(bytes) else { return (char::REPLACEMENT_CHARACTER, &[]) };
    let rest = &bytes[4..];
    let second = rest.strip_prefix(b"\\u").and_then(unit);
    let pair = second.and_then(|second| char::decode_utf16([first, second]).next()?.ok());
    match (char::from_u32(u32::from(first)), pair) {
        (Some(letter), _) => (letter, rest),
        (None, Some(letter)) => (letter, &rest[6..]),
        (None, None) => (char::REPLACEMENT_CHARACTER, rest),
    }
}

#[cfg(test)]
pub(crate) mod tests;
