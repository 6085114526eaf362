//! Names and values of one pod, container or image, in the order of the page. Both JSON and the page are made
//! from them.

use std::collections::BTreeMap;

use proto_cri::v1;
use serde_json::{Map, Value, json};

use super::units;

/// Names and values in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(Vec<(&'static str, Value)>);

impl Entries {
    /// The entries with one more.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Entries {
        self.0.push((name, value.into()));
        self
    }

    /// The entries with others behind them.
    #[must_use]
    pub(crate) fn joined(mut self, others: Entries) -> Entries {
        self.0.extend(others.0);
        self
    }

    /// The entries, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// The entries as an object. Empty values are included, so programs find every name.
    pub(crate) fn into_json(self) -> Value {
        Value::Object(self.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// A time; null for an unknown one.
pub(crate) fn time(at_ns: i64) -> Value {
    if at_ns > 0 { units::time(at_ns).into() } else { Value::Null }
}

/// Labels or annotations.
pub(crate) fn map(of: BTreeMap<String, String>) -> Value {
    Value::Object(of.into_iter().map(|(key, value)| (key, value.into())).collect())
}

/// The verbose information: JSON if a text is valid JSON, or else the text. Podvisor has all of it under one
/// key.
pub(crate) fn info(of: BTreeMap<String, String>) -> Value {
    let parsed = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let mut all: Map<String, Value> = of.into_iter().map(|(key, text)| (key, parsed(text))).collect();
    match all.remove("info") {
        Some(only @ Value::Object(_)) if all.is_empty() => only,
        Some(one) => {
            all.insert("info".to_owned(), one);
            Value::Object(all)
        }
        None => Value::Object(all),
    }
}

/// An enum of CRI by its name in the API, as "SANDBOX_READY" without its prefix and in small letters.
pub(crate) fn word(name: &str, prefix: &str) -> Value {
    json!(name.strip_prefix(prefix).unwrap_or(name).to_lowercase().replace('_', " "))
}

/// Mappings of ids, as `containerId hostId length` in the kernel's files.
pub(crate) fn mappings(of: &[v1::IdMapping]) -> Vec<String> {
    of.iter().map(|one| format!("{} {} {}", one.container_id, one.host_id, one.length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_is_parsed_where_it_is_json_and_kept_where_not() {
        let of =
            |pairs: &[(&str, &str)]| info(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
        assert_eq!(of(&[("info", r#"{"a":1}"#)]), json!({ "a": 1 }));
        assert_eq!(of(&[("info", r#"{"a":1}"#), ("b", "text")]), json!({ "info": { "a": 1 }, "b": "text" }));
        assert_eq!(of(&[("info", "no JSON")]), json!({ "info": "no JSON" }));
        assert_eq!(of(&[]), json!({}));
    }

    #[test]
    fn values_of_enums_are_words() {
        assert_eq!(word("PROPAGATION_HOST_TO_CONTAINER", "PROPAGATION_"), "host to container");
        assert_eq!(word("POD", "X_"), "pod");
    }

    #[test]
    fn json_has_every_name_and_the_order_is_the_pages() {
        let entries = Entries::default().with("b", 1).with("a", Value::Null);
        assert_eq!(entries.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(entries.into_json(), json!({ "b": 1, "a": null }));
    }
}
