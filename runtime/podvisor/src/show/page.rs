//! A JSON value as a page for people: one name and value per line, with nested values indented. Pure.

use serde_json::Value;

use super::{escape, units};

/// Spaces per level of indentation.
const INDENT: usize = 2;

/// Indented levels. Deeper ones are printed as JSON on one line, so a guest's data cannot make the page wide.
const LEVELS_MAX: usize = 8;

/// Returns the page of these names and values, in their order. Empty values are left out, and sizes in bytes
/// get a unit.
pub(crate) fn render<'a>(entries: impl IntoIterator<Item = (&'a str, &'a Value)>) -> String {
    let mut page = String::new();
    for (name, value) in entries {
        add(&mut page, 0, name, value);
    }
    page
}

fn add(page: &mut String, level: usize, name: &str, value: &Value) {
    if is_empty(value) {
        return;
    }
    let indent = " ".repeat(INDENT * level);
    let shown = escape::line(name);
    match value {
        Value::Object(below) if level < LEVELS_MAX => {
            page.push_str(&format!("{indent}{shown}:\n"));
            below.iter().for_each(|(name, value)| add(page, level + 1, name, value));
        }
        Value::Array(items)
            if level < LEVELS_MAX && items.iter().any(|item| item.is_object() || item.is_array()) =>
        {
            page.push_str(&format!("{indent}{shown}:\n"));
            for (number, item) in items.iter().enumerate() {
                add(page, level + 1, &number.to_string(), item);
            }
        }
        _ => page.push_str(&format!("{indent}{shown}: {}\n", escape::line(&text(name, value)))),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(below) => below.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn text(name: &str, value: &Value) -> String {
    let is_size = ["_bytes", "Bytes"].iter().any(|ending| name.ends_with(ending));
    match value {
        Value::String(text) => text.clone(),
        Value::Number(_) if is_size && value.as_u64().is_some_and(|size| size >= 1024) => {
            format!("{value} ({})", units::bytes(value.as_u64().unwrap_or_default()))
        }
        Value::Array(items) if !items.iter().any(|item| item.is_object() || item.is_array()) => {
            items.iter().map(|item| text(name, item)).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_values_stand_in_their_order_and_levels() {
        let value = json!({ "size_bytes": 134_217_728, "none": null, "list": ["a", "b"], "items": [{ "x": 1 }, { "x": true }] });
        let (name, empty) = (json!("web"), json!({ "a": [], "b": "" }));
        let page = render([("name", &name), ("nothing", &empty), ("below", &value)]);
        for line in [
            "name: web\n",
            "below:\n",
            "  size_bytes: 134217728 (128MiB)\n",
            "  list: a, b\n",
            "    0:\n      x: 1\n",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(!page.contains("no") && page.starts_with("name"), "{page}");
    }

    #[test]
    fn what_a_guest_or_an_image_wrote_is_shown_and_never_obeyed() {
        let value = json!({ "no\x1bte": "line\nline\u{9b}2J", "list": ["\x07"] });
        let page = render([("annotations", &value)]);
        assert!(page.chars().all(|letter| letter == '\n' || !escape::is_harmful(letter)), "{page:?}");
        assert_eq!(page.lines().count(), 3);
    }

    #[test]
    fn depth_without_end_makes_no_wide_page() {
        let deep = (0..200).fold(json!(1), |below, _| json!({ "a": below }));
        let page = render([("deep", &deep)]);
        assert_eq!(page.lines().count(), LEVELS_MAX + 1);
        assert!(page.lines().all(|line| line.len() - line.trim_start().len() <= INDENT * LEVELS_MAX));
    }
}
